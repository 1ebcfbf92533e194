//! Mutation of an expression, a condition, a block's statements and a function's body by each
//! operator.

use std::ops::Range;

use syn::spanned::Spanned;
use syn::{BinOp, Block, Expr, ExprBinary, Lit, Pat, ReturnType, Stmt, UnOp};

use super::mutant::{Operator, Shape};
use super::scan::Scan;

/// The last word of the name of an instant.
const INSTANTS: &[&str] = &[
    "at", "began", "begin", "deadline", "due", "end", "expires", "instant", "now", "read", "sent",
    "since", "start", "started", "time", "until", "when",
];

/// Methods whose argument counts or numbers elements.
const COUNTING: &[&str] = &[
    "get",
    "get_mut",
    "nth",
    "skip",
    "split_at",
    "split_off",
    "split_to",
    "take",
    "truncate",
];

/// Functions whose last argument may be the version that a change expects.
const VERSIONED: &[&str] = &["check", "delete", "set", "set_acl", "set_data"];

impl Scan<'_> {
    /// The mutants of an expression itself; its parts are visited later.
    pub(super) fn expression(&mut self, expr: &Expr) {
        match expr {
            Expr::Binary(binary) => self.binary(expr, binary),
            Expr::Unary(unary) if matches!(unary.op, UnOp::Not(_)) => {
                let operand = self.text_of(&unary.expr).to_owned();
                self.replace(Operator::Not, expr, operand);
            }
            Expr::If(branch) => self.condition(&branch.cond, true),
            Expr::While(round) => self.condition(&round.cond, false),
            Expr::Lit(literal) => {
                if let Lit::Int(number) = &literal.lit
                    && let Ok(value) = number.base10_parse::<u64>()
                {
                    let higher = format!("{}{}", value.saturating_add(1), number.suffix());
                    self.replace(Operator::Literal, expr, higher);
                }
            }
            Expr::Index(index) => self.index(&index.index),
            Expr::Call(call) => {
                let name = last_name(&call.func).unwrap_or_default();
                self.arguments(&name, call.args.iter());
            }
            Expr::MethodCall(call) => {
                let name = call.method.to_string();
                if COUNTING.contains(&&*name)
                    && let Some(count) = call.args.first()
                {
                    self.index(count);
                }
                if syncs(&name) && call.args.len() < 2 {
                    self.replace(Operator::SyncLeftOut, expr, "Ok(())".to_owned());
                }
                self.arguments(&name, call.args.iter());
            }
            Expr::Struct(value) => {
                for field in &value.fields {
                    if field.colon_token.is_some() {
                        self.later(&field.expr);
                    }
                }
            }
            Expr::Tuple(tuple) => tuple.elems.iter().for_each(|part| self.later(part)),
            Expr::Assign(assign) => self.later(&assign.right),
            _ => {}
        }
    }

    fn arguments<'a>(&mut self, callee: &str, arguments: impl Iterator<Item = &'a Expr>) {
        for argument in arguments {
            self.later(argument);
            if VERSIONED.contains(&callee) && is_version(argument) {
                self.replace(Operator::VersionLeftOut, argument, "None".to_owned());
            }
        }
    }

    fn binary(&mut self, expr: &Expr, binary: &ExprBinary) {
        let (operator, instead) = match binary.op {
            BinOp::Lt(_) => (Operator::Boundary, "<="),
            BinOp::Le(_) => (Operator::Boundary, "<"),
            BinOp::Gt(_) => (Operator::Boundary, ">="),
            BinOp::Ge(_) => (Operator::Boundary, ">"),
            BinOp::Eq(_) => (Operator::Equality, "!="),
            BinOp::Ne(_) => (Operator::Equality, "=="),
            BinOp::And(_) if !has_let(expr) => (Operator::AndOr, "||"),
            BinOp::Or(_) => (Operator::AndOr, "&&"),
            BinOp::Add(_) => (Operator::Arithmetic, "-"),
            BinOp::Sub(_) => (Operator::Arithmetic, "+"),
            BinOp::AddAssign(_) => (Operator::Arithmetic, "-="),
            BinOp::SubAssign(_) => (Operator::Arithmetic, "+="),
            _ => return,
        };
        let (left, right) = (self.text_of(&binary.left), self.text_of(&binary.right));
        let replacement = match operator {
            // `a && b || c` for `a || b || c`: the sides stay what they were.
            Operator::AndOr => format!("({left}) {instead} ({right})"),
            _ => format!("{left} {instead} {right}"),
        };
        self.replace(operator, expr, replacement);
        if operator != Operator::AndOr && operator != Operator::Equality {
            self.later(&binary.left);
            self.later(&binary.right);
        }
    }

    /// An index, or the ends of a range of them, one higher.
    fn index(&mut self, index: &Expr) {
        match index {
            Expr::Range(range) => {
                for end in [&range.start, &range.end].into_iter().flatten() {
                    self.index(end);
                }
            }
            Expr::Path(_) | Expr::Field(_) | Expr::MethodCall(_) | Expr::Binary(_) => {
                let higher = format!("({}) + 1", self.text_of(index));
                self.replace(Operator::Index, index, higher);
            }
            _ => {}
        }
    }

    /// The condition of an `if`, a `while` or a match arm.
    pub(super) fn condition(&mut self, condition: &Expr, may_be_true: bool) {
        let range = condition.span().byte_range();
        if has_let(condition) {
            if is_let_chain(condition) {
                let (operator, shape) = (Operator::AlwaysFalse, Shape::Condition);
                self.note(operator, shape, range, "false".to_owned());
            }
            let mut sides = Vec::new();
            sides_of(condition, &mut sides);
            for side in sides.into_iter().filter(|side| !has_let(side)) {
                self.replace(Operator::AlwaysTrue, side, "true".to_owned());
            }
            return;
        }
        if matches!(condition, Expr::Lit(_)) {
            return;
        }
        self.replace(Operator::AlwaysFalse, condition, "false".to_owned());
        if may_be_true {
            self.replace(Operator::AlwaysTrue, condition, "true".to_owned());
        }
        let mut sides = Vec::new();
        sides_of(condition, &mut sides);
        for side in sides {
            let call = matches!(side, Expr::MethodCall(_) | Expr::Call(_));
            if call && side.span().byte_range() != range {
                let negated = format!("!{}", self.text_of(side));
                self.replace(Operator::Negated, side, negated);
            }
        }
    }

    /// An expression that has the name of an instant, later. Those of other types do not compile.
    fn later(&mut self, expr: &Expr) {
        let name = match expr {
            Expr::Path(_) | Expr::Field(_) => last_name(expr),
            Expr::MethodCall(call) if call.args.is_empty() => Some(call.method.to_string()),
            Expr::Call(call) if call.args.is_empty() => last_name(&call.func),
            _ => None,
        };
        let word = name.as_deref().and_then(|name| name.rsplit('_').next());
        if word.is_some_and(|word| INSTANTS.contains(&word)) {
            let later = format!("crate::__mutant::later({})", self.text_of(expr));
            self.replace(Operator::Later, expr, later);
        }
    }

    /// Statements left out, and neighbours swapped.
    pub(super) fn statements(&mut self, block: &Block) {
        let mut before: Option<Range<usize>> = None;
        for statement in &block.stmts {
            let range = statement.span().byte_range();
            let Some((name, is_call)) = effect(statement) else {
                before = None;
                continue;
            };
            let operator = if syncs(&name) {
                Operator::SyncLeftOut
            } else if name.contains("watch") || name.contains("arm") {
                Operator::WatchLeftOut
            } else {
                Operator::LeftOut
            };
            self.note(operator, Shape::Statements, range.clone(), String::new());
            if let (Some(first), true) = (&before, is_call) {
                let both = first.start..range.end;
                let swapped = format!(
                    "{} {}",
                    self.text_at(range.clone()),
                    self.text_at(first.clone())
                );
                self.note(Operator::Swapped, Shape::Statements, both, swapped);
            }
            before = is_call.then_some(range);
        }
    }

    /// A body that returns a default.
    pub(super) fn body(&mut self, output: &ReturnType, body: &Block) {
        let span = body.span().byte_range();
        let inside = span.start + 1..span.end.saturating_sub(1);
        let text = self.text_at(inside.clone()).trim().to_owned();
        if text.is_empty() {
            return;
        }
        let values = match output {
            ReturnType::Default => vec![String::new()],
            ReturnType::Type(_, output) => defaults(output),
        };
        for value in values.into_iter().filter(|value| *value != text) {
            self.note(Operator::Body, Shape::Body, inside.clone(), value);
        }
    }
}

/// The last name of a path or of a chain of fields.
fn last_name(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Path(path) => Some(path.path.segments.last()?.ident.to_string()),
        Expr::Field(field) => match &field.member {
            syn::Member::Named(name) => Some(name.to_string()),
            syn::Member::Unnamed(_) => None,
        },
        _ => None,
    }
}

fn syncs(name: &str) -> bool {
    name.contains("sync") && !name.contains("async") || name.contains("caught_up")
}

fn is_version(argument: &Expr) -> bool {
    match argument {
        Expr::Call(call) => last_name(&call.func).is_some_and(|name| name == "Some"),
        other => {
            last_name(other).is_some_and(|name| name.ends_with("version") || name == "expected")
        }
    }
}

/// Returns whether a `let` decides in this condition.
fn has_let(condition: &Expr) -> bool {
    match condition {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        Expr::Paren(inside) => has_let(&inside.expr),
        _ => false,
    }
}

/// Returns whether a condition is a chain of `&&` that can take one more side in front.
fn is_let_chain(condition: &Expr) -> bool {
    match condition {
        Expr::Let(_) => true,
        Expr::Binary(binary) if matches!(binary.op, BinOp::And(_)) => is_let_chain(&binary.left),
        Expr::Binary(binary) => !matches!(binary.op, BinOp::Or(_)),
        _ => true,
    }
}

/// The sides of a chain of `&&` and `||`.
fn sides_of<'a>(condition: &'a Expr, sides: &mut Vec<&'a Expr>) {
    match condition {
        Expr::Binary(binary) if matches!(binary.op, BinOp::And(_) | BinOp::Or(_)) => {
            sides_of(&binary.left, sides);
            sides_of(&binary.right, sides);
        }
        Expr::Paren(inside) => sides_of(&inside.expr, sides),
        other => sides.push(other),
    }
}

/// The name of what a statement calls or sets, if leaving it out can compile, and whether it is a
/// call: the order of two calls may matter, that of two assignments rarely does.
fn effect(statement: &Stmt) -> Option<(String, bool)> {
    match statement {
        Stmt::Expr(Expr::Assign(assign), Some(_)) => {
            Some((last_name(&assign.left).unwrap_or_default(), false))
        }
        Stmt::Expr(Expr::Binary(binary), Some(_))
            if matches!(binary.op, BinOp::AddAssign(_) | BinOp::SubAssign(_)) =>
        {
            Some((last_name(&binary.left).unwrap_or_default(), false))
        }
        Stmt::Expr(expr, Some(_)) => called(expr).map(|name| (name, true)),
        Stmt::Local(local) if matches!(local.pat, Pat::Wild(_)) => {
            let value = &local.init.as_ref()?.expr;
            called(value).map(|name| (name, true))
        }
        _ => None,
    }
}

/// The name of the function that an expression calls, or of the future that it awaits.
fn called(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Try(inside) => called(&inside.expr),
        Expr::Paren(inside) => called(&inside.expr),
        Expr::Await(inside) => called(&inside.base).or_else(|| last_name(&inside.base)),
        Expr::MethodCall(call) => Some(call.method.to_string()),
        Expr::Call(call) => {
            let name = last_name(&call.func)?;
            // `drop(session.sync(path))` is a sync.
            let inner = (name == "drop").then(|| call.args.first().and_then(called));
            Some(inner.flatten().unwrap_or(name))
        }
        _ => None,
    }
}

/// Values that a function of this type may return without having done anything.
fn defaults(output: &syn::Type) -> Vec<String> {
    let some = |values: &[&str]| values.iter().map(|&value| value.to_owned()).collect();
    match output {
        syn::Type::Tuple(tuple) if tuple.elems.is_empty() => some(&["()"]),
        syn::Type::Path(path) => {
            let Some(last) = path.path.segments.last() else {
                return Vec::new();
            };
            match &*last.ident.to_string() {
                "bool" => some(&["true", "false"]),
                "u8" | "u16" | "u32" | "u64" | "u128" | "usize" | "i8" | "i16" | "i32" | "i64"
                | "i128" | "isize" => some(&["0"]),
                "Option" => some(&["None"]),
                "Result" => match &last.arguments {
                    syn::PathArguments::AngleBracketed(types) => match types.args.first() {
                        Some(syn::GenericArgument::Type(inner)) => defaults(inner)
                            .into_iter()
                            .map(|value| format!("Ok({value})"))
                            .collect(),
                        _ => Vec::new(),
                    },
                    _ => Vec::new(),
                },
                "Vec" | "String" | "Duration" | "Bytes" | "BTreeMap" | "BTreeSet" | "HashMap"
                | "HashSet" | "VecDeque" => some(&["Default::default()"]),
                _ => Vec::new(),
            }
        }
        _ => Vec::new(),
    }
}
