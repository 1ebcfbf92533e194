"""The size of the client, and its dependencies: none."""

import ast
import glob
import os
import sys
import tokenize
import unittest

from .support import ROOT

LAYOUT = (tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def lines_of_code(name):
    """Returns the lines that have more than space, a comment or a docstring."""
    lines, begins = set(), True
    with open(name, encoding="utf-8") as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type not in LAYOUT:
                is_docstring = begins and token.type == tokenize.STRING
                begins = token.type == tokenize.NEWLINE
                if not is_docstring and not begins:
                    lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines)


def imports(name):
    with open(name, encoding="utf-8") as file:
        for node in ast.walk(ast.parse(file.read())):
            if isinstance(node, ast.Import):
                yield from (it.name.split(".")[0] for it in node.names)
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                yield node.module.split(".")[0]


class Package(unittest.TestCase):
    files = glob.glob(os.path.join(ROOT, "baton", "*.py"))

    # Asyncio beside threads takes about 75 of them.
    def test_it_has_at_most_675_lines_of_code(self):
        self.assertEqual(len(self.files), 4)
        self.assertLessEqual(sum(map(lines_of_code, self.files)), 675)

    @unittest.skipUnless(hasattr(sys, "stdlib_module_names"), "Python has its list from 3.10 on")
    def test_it_imports_the_standard_library_alone(self):
        imported = {module for name in self.files for module in imports(name)}
        self.assertEqual(imported - set(sys.stdlib_module_names), set())
