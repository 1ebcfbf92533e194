//! Finds every mutant of one source file.
//!
//! Owns which code is mutated: function bodies, without tests, constants, patterns, types,
//! attributes and most macros. What is done to an expression or a statement is in `operators`.

use std::ops::Range;

use proc_macro2::TokenStream;
use syn::parse::{ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Block, Expr, Item, Pat, Token};

use super::mutant::{Mutant, Operator, Shape, one_line};

/// Longer code is not doubled: what is inside of it is mutated all the same.
const MOST_BYTES: usize = 900;

/// The mutants of a file, in the order of its text.
pub(super) fn scan(file: &str, text: &str) -> syn::Result<Vec<Mutant>> {
    let syntax = syn::parse_file(text)?;
    let mut scan = Scan {
        file,
        text,
        line_ends: text.match_indices('\n').map(|(at, _)| at).collect(),
        owner: Vec::new(),
        function: String::new(),
        found: Vec::new(),
    };
    scan.visit_file(&syntax);
    let mut found = scan.found;
    found.sort_by_key(|mutant| (mutant.range.start, mutant.range.end, mutant.operator));
    Ok(found)
}

/// The modules that a file declares for tests only: `#[cfg(test)] mod model;` gives `model`.
pub(super) fn test_modules(text: &str) -> syn::Result<Vec<String>> {
    let items = syn::parse_file(text)?.items;
    let modules = items.into_iter().filter_map(|item| match item {
        Item::Mod(module) if module.content.is_none() && not_compiled(&module.attrs) => {
            Some(module.ident.to_string())
        }
        _ => None,
    });
    Ok(modules.collect())
}

/// Returns whether attributes say that this is a test, or not compiled here.
fn not_compiled(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        let last = path.segments.last();
        if last.is_some_and(|segment| segment.ident == "test") {
            return true;
        }
        path.is_ident("cfg")
            && attribute.meta.require_list().is_ok_and(|list| {
                let cfg = list.tokens.to_string();
                let mut words = cfg.split(|char: char| !char.is_alphanumeric() && char != '_');
                words.any(|word| ["test", "doctest", "testing", "not", "windows"].contains(&word))
            })
    })
}

/// The walk through one file.
pub(super) struct Scan<'t> {
    file: &'t str,
    text: &'t str,
    line_ends: Vec<usize>,
    /// The `impl` and `trait` blocks around.
    owner: Vec<String>,
    function: String,
    found: Vec<Mutant>,
}

impl Scan<'_> {
    /// The text of a piece of syntax.
    pub(super) fn text_of(&self, syntax: &impl Spanned) -> &str {
        self.text_at(syntax.span().byte_range())
    }

    /// The text of some bytes.
    pub(super) fn text_at(&self, range: Range<usize>) -> &str {
        self.text.get(range).unwrap_or_default()
    }

    /// Notes one mutant.
    pub(super) fn note(
        &mut self,
        operator: Operator,
        shape: Shape,
        range: Range<usize>,
        replacement: String,
    ) {
        let doubled = matches!(shape, Shape::Expression | Shape::Statements);
        if self.function.is_empty() || doubled && range.len() > MOST_BYTES {
            return;
        }
        let line = |at: usize| 1 + self.line_ends.partition_point(|&end| end < at);
        self.found.push(Mutant {
            file: self.file.to_owned(),
            function: self.function.clone(),
            line: line(range.start),
            last_line: line(range.end),
            operator,
            shape,
            original: one_line(self.text_at(range.clone())),
            range,
            replacement,
        });
    }

    /// Notes a mutant that replaces an expression.
    pub(super) fn replace(&mut self, operator: Operator, expr: &Expr, replacement: String) {
        let range = expr.span().byte_range();
        self.note(operator, Shape::Expression, range, replacement);
    }

    fn function(&mut self, signature: &syn::Signature, body: &Block) {
        if signature.constness.is_some() {
            return;
        }
        let name = match self.owner.last() {
            Some(owner) => format!("{owner}::{}", signature.ident),
            None => signature.ident.to_string(),
        };
        let around = std::mem::replace(&mut self.function, name);
        self.body(&signature.output, body);
        self.visit_block(body);
        self.function = around;
    }

    fn inside(&mut self, owner: String, walk: impl FnOnce(&mut Self)) {
        self.owner.push(owner);
        walk(self);
        self.owner.pop();
    }
}

impl<'ast> Visit<'ast> for Scan<'_> {
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
    fn visit_pat(&mut self, _: &'ast Pat) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_path(&mut self, _: &'ast syn::Path) {}
    fn visit_generics(&mut self, _: &'ast syn::Generics) {}
    fn visit_angle_bracketed_generic_arguments(
        &mut self,
        _: &'ast syn::AngleBracketedGenericArguments,
    ) {
    }
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_item_enum(&mut self, _: &'ast syn::ItemEnum) {}
    fn visit_item_macro(&mut self, _: &'ast syn::ItemMacro) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !not_compiled(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_impl(&mut self, block: &'ast syn::ItemImpl) {
        let shown = block
            .trait_
            .as_ref()
            .and_then(|(_, path, _)| path.segments.last())
            .is_some_and(|name| name.ident == "Debug" || name.ident == "Display");
        if shown || not_compiled(&block.attrs) {
            return;
        }
        let owner = match &*block.self_ty {
            syn::Type::Path(path) => path.path.segments.last().map(|name| name.ident.to_string()),
            _ => None,
        };
        let owner = owner.unwrap_or_else(|| one_line(self.text_of(&block.self_ty)));
        self.inside(owner, |scan| visit::visit_item_impl(scan, block));
    }

    fn visit_item_trait(&mut self, block: &'ast syn::ItemTrait) {
        let owner = block.ident.to_string();
        self.inside(owner, |scan| visit::visit_item_trait(scan, block));
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        if !not_compiled(&function.attrs) {
            self.function(&function.sig, &function.block);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !not_compiled(&function.attrs) {
            self.function(&function.sig, &function.block);
        }
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let (Some(body), false) = (&function.default, not_compiled(&function.attrs)) {
            self.function(&function.sig, body);
        }
    }

    fn visit_block(&mut self, block: &'ast Block) {
        self.statements(block);
        visit::visit_block(self, block);
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if !not_compiled(&local.attrs) {
            visit::visit_local(self, local);
        }
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if let Some((_, guard)) = &arm.guard {
            self.condition(guard, true);
        }
        visit::visit_arm(self, arm);
    }

    fn visit_expr_block(&mut self, block: &'ast syn::ExprBlock) {
        if !not_compiled(&block.attrs) {
            visit::visit_expr_block(self, block);
        }
    }

    fn visit_expr_repeat(&mut self, repeat: &'ast syn::ExprRepeat) {
        self.visit_expr(&repeat.expr);
    }

    fn visit_expr(&mut self, expr: &'ast Expr) {
        self.expression(expr);
        visit::visit_expr(self, expr);
    }

    /// The arguments of those macros whose insides are plain expressions.
    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let name = call.path.segments.last().map(|name| name.ident.to_string());
        let parsed = match name.as_deref() {
            Some("select") => select.parse2(call.tokens.clone()),
            Some("matches") => matches.parse2(call.tokens.clone()),
            Some("vec" | "join" | "try_join" | "ready") => {
                list.parse2(TokenStream::clone(&call.tokens))
            }
            _ => return,
        };
        for part in parsed.unwrap_or_default() {
            match part {
                Part::Expression(expr) => self.owned(&expr),
                Part::Condition(expr) => {
                    self.condition(&expr, true);
                    self.owned(&expr);
                }
            }
        }
    }
}

impl Scan<'_> {
    /// Walks through what was parsed here.
    fn owned(&mut self, expr: &Expr) {
        self.expression(expr);
        visit::visit_expr(self, expr);
    }
}

/// A piece of a macro's insides.
enum Part {
    Expression(Expr),
    Condition(Expr),
}

/// The branches of a `select!`: `biased; pattern = future, if condition => result, ...`.
fn select(input: ParseStream<'_>) -> syn::Result<Vec<Part>> {
    let mut parts = Vec::new();
    if input.peek(syn::Ident) && input.peek2(Token![;]) {
        input.parse::<syn::Ident>()?;
        input.parse::<Token![;]>()?;
    }
    while !input.is_empty() {
        if input.peek(Token![else]) {
            input.parse::<Token![else]>()?;
        } else {
            Pat::parse_multi_with_leading_vert(input)?;
            input.parse::<Token![=]>()?;
            parts.push(Part::Expression(input.parse()?));
            if input.peek(Token![,]) {
                input.parse::<Token![,]>()?;
                input.parse::<Token![if]>()?;
                parts.push(Part::Condition(input.parse()?));
            }
        }
        input.parse::<Token![=>]>()?;
        parts.push(Part::Expression(Expr::parse_with_earlier_boundary_rule(
            input,
        )?));
        if input.peek(Token![,]) {
            input.parse::<Token![,]>()?;
        }
    }
    Ok(parts)
}

/// `matches!(value, pattern if condition)`.
fn matches(input: ParseStream<'_>) -> syn::Result<Vec<Part>> {
    let mut parts = vec![Part::Expression(input.parse()?)];
    input.parse::<Token![,]>()?;
    Pat::parse_multi_with_leading_vert(input)?;
    if input.peek(Token![if]) {
        input.parse::<Token![if]>()?;
        parts.push(Part::Condition(input.parse()?));
    }
    input.parse::<Option<Token![,]>>()?;
    Ok(parts)
}

/// Expressions between commas.
fn list(input: ParseStream<'_>) -> syn::Result<Vec<Part>> {
    let items = Punctuated::<Expr, Token![,]>::parse_terminated(input)?;
    Ok(items.into_iter().map(Part::Expression).collect())
}
