//! The analysis beside the parser of the crate `sqlparser`, with its PostgreSQL dialect: for each text of the corpus the
//! classes and the tables of all statements agree, or the text is in `differences.txt` with the side that is right.
//!
//! The corpus is `statements.txt` and `corpus.txt`: statements in the forms of PostgreSQL's documentation and of clients,
//! one to a paragraph.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use sqlparser::ast::{self, Statement as Tree, visit_relations};
use sqlparser::{dialect::PostgreSqlDialect, parser::Parser};
use weir_analysis::postgres::{Class, Limits, QualifiedName, analyse, name};

use super::golden::texts;

/// A class and the relations of each statement.
type Facts = Vec<(Class, BTreeSet<String>)>;

fn shown(name: &QualifiedName<'_>) -> String {
    let text = |part: &[u8]| String::from_utf8_lossy(part).into_owned();
    let schema = name.schema.as_deref().map_or_else(String::new, |schema| text(schema) + ".");
    schema + &text(&name.object)
}

fn ours(text: &str) -> Option<Facts> {
    let analysis = analyse(text.as_bytes(), &Limits::default());
    let of = |statement: &weir_analysis::postgres::Statement| {
        let tables = statement.tables.iter().map(|&table| shown(&name(text.as_bytes(), table))).collect();
        (statement.class, tables)
    };
    analysis.is_whole.then(|| analysis.statements.iter().map(of).collect())
}

fn theirs(text: &str) -> Option<Facts> {
    let trees = Parser::parse_sql(&PostgreSqlDialect {}, text).ok()?;
    Some(trees.iter().map(|tree| (class(tree), relations(tree))).collect())
}

/// Names of relations, less those of WITH anywhere in the statement.
fn relations(tree: &Tree) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let _ = visit_relations(tree, |relation| {
        found.insert(object(relation));
        ControlFlow::<()>::Continue(())
    });
    for with in names_of_with(tree) {
        found.remove(&with);
    }
    found
}

fn object(name: &ast::ObjectName) -> String {
    let part = |part: &ast::ObjectNamePart| match part {
        ast::ObjectNamePart::Identifier(ident) if ident.quote_style.is_none() => ident.value.to_ascii_lowercase(),
        ast::ObjectNamePart::Identifier(ident) => ident.value.clone(),
        other => other.to_string(),
    };
    let parts: Vec<_> = name.0.iter().map(part).collect();
    parts[parts.len().saturating_sub(2)..].join(".")
}

fn names_of_with(tree: &Tree) -> Vec<String> {
    struct Names(Vec<String>);
    impl ast::Visitor for Names {
        type Break = ();
        fn pre_visit_query(&mut self, query: &ast::Query) -> ControlFlow<()> {
            let names = query.with.iter().flat_map(|with| &with.cte_tables).map(|cte| cte.alias.name.value.clone());
            self.0.extend(names);
            ControlFlow::Continue(())
        }
    }
    let mut names = Names(Vec::new());
    let _ = ast::Visit::visit(tree, &mut names);
    names.0
}

fn class(tree: &Tree) -> Class {
    match tree {
        Tree::Query(query) => query_class(query),
        Tree::Insert(_) | Tree::Update { .. } | Tree::Delete(_) | Tree::Merge { .. } | Tree::Truncate { .. } => {
            Class::Write
        }
        Tree::Explain { analyze, statement, .. } => {
            if *analyze {
                class(statement)
            } else {
                Class::Read
            }
        }
        Tree::Prepare { statement, .. } => class(statement),
        Tree::Declare { .. } | Tree::Fetch { .. } | Tree::ShowVariable { .. } => Class::Read,
        Tree::StartTransaction { .. } | Tree::Commit { .. } | Tree::Rollback { .. } => Class::Transaction,
        Tree::Savepoint { .. } | Tree::ReleaseSavepoint { .. } => Class::Transaction,
        Tree::Set(ast::Set::SetTransaction { session: false, .. }) => Class::Transaction,
        Tree::Set(_) | Tree::Reset { .. } | Tree::Discard { .. } | Tree::LISTEN { .. } => Class::Session,
        Tree::UNLISTEN { .. } | Tree::NOTIFY { .. } | Tree::Execute { .. } | Tree::Deallocate { .. } => Class::Session,
        Tree::Close { .. } => Class::Session,
        Tree::Copy { target, .. } => match target {
            ast::CopyTarget::Stdin | ast::CopyTarget::Stdout => Class::Copy,
            _ => Class::Admin,
        },
        Tree::Vacuum(_) | Tree::Analyze { .. } | Tree::Load { .. } => Class::Admin,
        Tree::Call(_) => Class::Unknown,
        Tree::Lock(_) => Class::Write,
        _ => Class::Ddl,
    }
}

fn query_class(query: &ast::Query) -> Class {
    fn set_class(set: &ast::SetExpr) -> Class {
        match set {
            ast::SetExpr::Select(select) if select.into.is_some() => Class::Ddl,
            ast::SetExpr::Insert(_) | ast::SetExpr::Update(_) | ast::SetExpr::Delete(_) | ast::SetExpr::Merge(_) => {
                Class::Write
            }
            ast::SetExpr::Query(query) => query_class(query),
            _ => Class::Read,
        }
    }
    let with = query.with.iter().flat_map(|with| &with.cte_tables).map(|cte| query_class(&cte.query));
    with.chain([set_class(&query.body)]).find(|class| *class != Class::Read).unwrap_or(Class::Read)
}

/// Texts with known differences: each paragraph of the file is one, below the headline (`# `) that says what differs and
/// which side is right.
fn listed() -> BTreeMap<&'static str, &'static str> {
    let mut why = "";
    let mut listed = BTreeMap::new();
    for paragraph in include_str!("differences.txt").split("\n\n").map(|paragraph| paragraph.trim_matches('\n')) {
        match paragraph.strip_prefix("# ") {
            Some(headline) => why = headline,
            None => assert!(listed.insert(paragraph, why).is_none(), "twice: {paragraph}"),
        }
    }
    listed
}

#[test]
fn class_and_tables_agree_with_another_parser() {
    let corpus = include_str!("corpus.txt").split("\n\n").map(|text| text.trim_matches('\n').to_owned());
    let all: BTreeSet<String> = texts().into_iter().chain(corpus).collect();
    let mut listed = listed();
    let (mut agree, mut unlisted) = (0, Vec::new());
    for text in &all {
        let (ours, theirs) = (ours(text), theirs(text));
        match listed.remove(text.as_str()) {
            None if ours == theirs => agree += 1,
            Some(why) if ours != theirs && why.starts_with("sqlparser refuses") == theirs.is_none() => {}
            _ => unlisted.push(format!("{text}\n   ours {ours:?}\n theirs {theirs:?}")),
        }
    }
    assert!(unlisted.is_empty(), "{} of {} texts differ:\n{}", unlisted.len(), all.len(), unlisted.join("\n\n"));
    assert!(listed.is_empty(), "gone: {listed:#?}");
    assert!(agree > 300, "{agree} of {} texts agree", all.len());
}
