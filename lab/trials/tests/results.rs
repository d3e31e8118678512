//! The pages of `docs/results` are those of the results beside them: no figure in them was written by hand.
//!
//! `NAME.json`, or every file of the folder `NAME`, becomes `NAME.md`; `NAME.about.md` is its introduction.
//! `cargo xtask generate results` runs this with `WEIR_BLESS=1`, which writes results in their kept form and pages again.
//! Without it a page that is another fails.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use weir_trials::file::schema_of;
use weir_trials::{Comparison, Report, Sweep, comparison, side_by_side, swept};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results");
/// In front of `.md` of an introduction.
const ABOUT: &str = ".about";
/// The list of all pages.
const LIST: &str = "README";
/// In the list, above the pages that no result was kept of.
const BY_HAND: &str = "## Pages without kept results";
/// Digits of a figure that count: more than any table shows.
const DIGITS: usize = 9;

/// By page, the files of its results.
type Sources = BTreeMap<String, Vec<PathBuf>>;

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files
}

fn stem(path: &Path) -> String {
    path.file_stem().expect("a name").to_string_lossy().into_owned()
}

fn has_ending(path: &Path, ending: &str) -> bool {
    path.extension().is_some_and(|found| found == ending)
}

fn sources(folder: &Path) -> Sources {
    let mut sources = Sources::new();
    for path in files(folder) {
        if path.is_dir() {
            // Commands write a page of HTML beside each result.
            let results = files(&path).into_iter().filter(|file| has_ending(file, "json"));
            sources.entry(stem(&path)).or_default().extend(results);
        } else if has_ending(&path, "json") {
            sources.entry(stem(&path)).or_default().push(path);
        }
    }
    sources
}

/// A result without what no page shows: seconds of trials, descriptors and ports, nulls, zeros of a trial, digits that are
/// noise, and where the program of the command was. The schema comes first, and each part has a line.
fn kept(text: &str) -> String {
    let mut whole: Value = serde_json::from_str(text).expect("JSON");
    thin(&mut whole, false);
    let parts = whole.as_object_mut().expect("an object");
    if let Some(Value::String(command)) = parts.get_mut("command") {
        let program = command.split(' ').next().unwrap_or_default();
        let folder = program.rfind('/').map_or(0, |slash| slash + 1);
        command.drain(..folder);
    }
    let schema = parts.remove("schema").expect("a schema");
    let line = |(name, part): (&str, &Value)| format!("{}:{part}", Value::from(name));
    let rest = parts.iter().map(|(name, part)| line((name, part)));
    let lines: Vec<String> = std::iter::once(line(("schema", &schema))).chain(rest).collect();
    format!("{{\n{}\n}}\n", lines.join(",\n"))
}

/// In a trial what is missing is zero.
fn thin(value: &mut Value, is_trial: bool) {
    match value {
        Value::Object(fields) => {
            if is_trial {
                fields.remove("resources");
            }
            for (name, field) in fields.iter_mut() {
                match field {
                    Value::Array(seconds) if name == "seconds" => seconds.clear(),
                    _ => thin(field, is_trial || name == "trial"),
                }
            }
            fields.retain(|_, field| !(field.is_null() || (is_trial && is_nothing(field))));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| thin(item, is_trial)),
        Value::Number(number) if number.is_f64() => {
            let rounded = number.as_f64().and_then(|figure| format!("{figure:.*e}", DIGITS - 1).parse::<f64>().ok());
            *value = Value::from(rounded.expect("a figure"));
        }
        _ => {}
    }
}

fn is_nothing(value: &Value) -> bool {
    value == false || value.as_f64() == Some(0.0) || value.as_object().is_some_and(Map::is_empty)
}

/// One comparison or sweep has the page of its kind; all else is a report.
fn rendered(results: &[(String, String)]) -> String {
    if let [(_, text)] = results {
        match &*schema_of(text).expect("a schema") {
            comparison::SCHEMA => return side_by_side::markdown(&Comparison::from_json(text).expect("a comparison")),
            swept::SCHEMA => return Sweep::from_json(text).expect("a sweep").markdown(),
            _ => {}
        }
    }
    let mut report = Report::default();
    results.iter().for_each(|(name, text)| report.add(name, text));
    assert!(report.unread().is_empty(), "no results: {:?}", report.unread());
    report.render().markdown
}

/// The page of results, with its introduction. If that begins with a title, it is the page's.
fn page(results: &[(String, String)], about: &str) -> String {
    let text = rendered(results);
    let (title, rest) = text.split_once("\n\n").expect("a title and more");
    let links: Vec<String> = results.iter().map(|(path, _)| format!("[{path}]({path})")).collect();
    let made = format!("Made of {} by `cargo xtask generate results`.", links.join(", "));
    let (title, about) = match about.split_once('\n').filter(|(line, _)| line.starts_with("# ")) {
        Some((own, rest)) => (own, rest),
        None => (title, about),
    };
    let about = if about.trim().is_empty() { String::new() } else { format!("{}\n\n", about.trim()) };
    format!("{title}\n\n{about}{made}\n\n{rest}")
}

/// Compares, or writes on request.
fn settle(path: &Path, text: &str, is_blessed: bool) {
    if fs::read_to_string(path).is_ok_and(|found| found == text) {
        return;
    }
    assert!(is_blessed, "{} is stale: run `cargo xtask generate results` and read the difference", path.display());
    fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// Every page of `folder`.
fn settle_all(folder: &Path, is_blessed: bool) {
    for (name, files) in sources(folder) {
        let read = |path: &PathBuf| {
            let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let text = kept(&text);
            settle(path, &text, is_blessed);
            let within = path.strip_prefix(folder).expect("of this folder");
            (within.to_string_lossy().into_owned(), text)
        };
        let results: Vec<(String, String)> = files.iter().map(read).collect();
        let about = fs::read_to_string(folder.join(format!("{name}{ABOUT}.md"))).unwrap_or_default();
        settle(&folder.join(format!("{name}.md")), &page(&results, &about), is_blessed);
    }
}

#[test]
fn the_published_pages_are_those_of_their_results() {
    settle_all(Path::new(FOLDER), std::env::var_os("WEIR_BLESS").is_some());
}

#[test]
fn the_list_names_every_page_and_how_it_is_made() {
    let folder = Path::new(FOLDER);
    let list = fs::read_to_string(folder.join(format!("{LIST}.md"))).expect("a list");
    let (made, by_hand) = list.split_once(BY_HAND).expect("both parts");
    let sources = sources(folder);
    for path in files(folder).iter().filter(|path| has_ending(path, "md")) {
        let name = stem(path);
        if name == LIST {
            continue;
        }
        if let Some(page) = name.strip_suffix(ABOUT) {
            assert!(sources.contains_key(page), "{name}.md introduces no results");
            continue;
        }
        let link = format!("]({name}.md)");
        let is_listed = made.contains(&link) || (by_hand.contains(&link) && !sources.contains_key(&name));
        assert!(is_listed, "{LIST}.md does not list {name}.md, or says that no results of it are kept");
    }
}

/// As the program wrote them.
const COMPARED: &str = include_str!("../src/testdata/compared.json");
const FOUND: &str = include_str!("../src/testdata/knee.json");

#[test]
fn the_kept_form_has_the_same_page_and_less_bytes() {
    for text in [COMPARED, FOUND] {
        let short = kept(text);
        let page = |text: &str| rendered(&[("a.json".to_owned(), text.to_owned())]);
        assert_eq!(page(&short), page(text));
        assert!(short.starts_with("{\n\"schema\":\"weir.lab.") && short.len() < text.len(), "{}", short.len());
        assert_eq!(kept(&short), short);
        let elsewhere = text.replacen("\"weir lab ", "\"/some/where/weir lab ", 1);
        assert!(elsewhere != text && kept(&elsewhere) == short);
    }
}

#[test]
fn results_become_pages_and_a_stale_page_fails() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("two")).expect("made");
    fs::write(path("two/a.html"), "a page").expect("written");
    for (name, text) in
        [("one.json", COMPARED), ("two/a.json", COMPARED), ("two/b.json", FOUND), ("one.about.md", "# Own\n\nWords.\n")]
    {
        fs::write(path(name), text).expect("written");
    }
    let is_right = || std::panic::catch_unwind(|| settle_all(folder.path(), false)).is_ok();
    assert!(!is_right(), "no page is there");
    settle_all(folder.path(), true);
    assert!(is_right());
    let read = |name: &str| fs::read_to_string(path(name)).expect("a page");
    let (one, two) = (read("one.md"), read("two.md"));
    assert!(one.starts_with("# Own\n\nWords.\n\nMade of [one.json](one.json) by"), "{one}");
    assert!(two.starts_with("# Capacity report\n\nMade of [two/a.json](two/a.json), [two/b.json]"), "{two}");
    assert!(one.contains("| direct") && two.contains("## Clean knees") && two.contains("side by side"), "{two}");
    fs::write(path("one.md"), one.replace("direct", "better")).expect("written");
    assert!(!is_right());
    settle_all(folder.path(), true);
    assert!(is_right() && read("one.md") == one);
}
