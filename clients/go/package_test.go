package baton

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// sources returns the files of the client.
func sources(t *testing.T) []string {
	names, err := filepath.Glob("*.go")
	must(t, err)
	found := names[:0]
	for _, name := range names {
		if !strings.HasSuffix(name, "_test.go") {
			found = append(found, name)
		}
	}
	return found
}

func TestTheClientHasAtMost600LinesOfCode(t *testing.T) {
	bracket, lines := regexp.MustCompile(`^[\])},()]*$`), 0
	for _, name := range sources(t) {
		text, err := os.ReadFile(name)
		must(t, err)
		for _, line := range strings.Split(string(text), "\n") {
			line = strings.TrimSpace(line)
			if !bracket.MatchString(line) && !strings.HasPrefix(line, "//") {
				lines++
			}
		}
	}
	if lines > 600 || lines < 100 {
		t.Fatal(lines)
	}
}

func TestTheClientNeedsTheStandardLibraryAlone(t *testing.T) {
	for _, name := range sources(t) {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		must(t, err)
		for _, it := range file.Imports {
			if strings.Contains(it.Path.Value, ".") {
				t.Fatal(name, it.Path.Value)
			}
		}
	}
}

func TestTheExamplesOfThePagesAreThoseThatRun(t *testing.T) {
	run, err := os.ReadFile("example_test.go")
	must(t, err)
	plain := func(text string) string { return strings.ReplaceAll(text, "\t", "") }
	fenced := regexp.MustCompile("(?s)```go\n(.*?)```")
	for _, page := range []string{"README.md", "../../docs/user/go.md"} {
		text, err := os.ReadFile(page)
		must(t, err)
		examples := fenced.FindAllStringSubmatch(string(text), -1)
		if len(examples) == 0 {
			t.Fatal(page)
		}
		for _, example := range examples {
			if !strings.Contains(plain(string(run)), plain(example[1])) {
				t.Fatal(page, example[1])
			}
		}
	}
}

func TestTheReadmeHoldsALockInItsFirstTenLines(t *testing.T) {
	text, err := os.ReadFile("README.md")
	must(t, err)
	head := strings.Join(strings.Split(string(text), "\n")[:10], "\n")
	equal(t, strings.Contains(head, "baton.Lock("), true)
}
