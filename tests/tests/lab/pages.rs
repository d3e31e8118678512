//! The pages of results as a person sees them: in headless Chromium, on a desk and on a phone, light and dark. The screenshots
//! stay in `tmp/pages` of the target folder.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use weir_tests::gateway::program;

/// Kept results, and the charts and tables of their pages at least: of each kind that the lab has.
const RESULTS: [(&str, u64, u64); 5] =
    [("compared.json", 2, 2), ("knee.json", 2, 2), ("loaded.jsonl", 1, 1), ("ladder.json", 6, 2), ("cores.json", 1, 1)];

/// Width and scheme of the views of each page.
const VIEWS: [(u64, &str); 4] = [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")];

/// The folder of kept results.
fn kept() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../lab/trials/src/testdata")
}

/// Shows the pages in Chromium: what is seen in each view.
fn views(folder: &Path, pages: &[PathBuf]) -> Vec<Value> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/node/pages.js");
    // Chromium is Debian's: `cargo xtask setup browser`.
    let output = Command::new("node").arg(script).arg("chromium").arg(folder).args(pages).output().expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let lines = String::from_utf8_lossy(&output.stdout);
    lines.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

fn faults(view: &Value) -> Vec<&str> {
    view["faults"].as_array().expect("a list").iter().filter_map(Value::as_str).collect()
}

/// The page of these results, as `weir lab report` makes it.
fn report(folder: &Path, name: &str, results: &[&str]) -> PathBuf {
    let files = results.iter().map(|result| kept().join(result));
    let output = Command::new(program()).args(["lab", "report"]).args(files).arg("--out").arg(folder).output();
    let output = output.expect("weir starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let page = folder.join(name).with_extension("html");
    fs::rename(folder.join("report.html"), &page).expect("a page");
    page
}

#[test]
fn every_kind_of_page_is_whole_on_a_desk_and_on_a_phone_in_light_and_dark() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pages");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    let all: Vec<&str> = RESULTS.iter().map(|(result, ..)| *result).collect();
    let mut expected: Vec<(&str, u64, u64)> = RESULTS.to_vec();
    expected.push(("together", RESULTS.iter().map(|(_, charts, _)| charts).sum(), 8));
    let one = |result: &&str| report(&folder, result, &[result]);
    let mut pages: Vec<PathBuf> = all.iter().map(one).collect();
    pages.push(report(&folder, "together", &all));
    let views = views(&folder, &pages);
    let seen: Vec<(u64, &str)> = views
        .iter()
        .map(|view| (view["width"].as_u64().expect("a width"), view["scheme"].as_str().expect("a word")))
        .collect();
    assert_eq!(seen, VIEWS.repeat(pages.len()));
    for (views, (page, charts, tables)) in views.chunks(VIEWS.len()).zip(expected) {
        for view in views {
            assert_eq!(faults(view), Vec::<&str>::new(), "{page}, {} px, {}", view["width"], view["scheme"]);
            assert!(view["figures"].as_u64() >= Some(charts) && view["tables"].as_u64() >= Some(tables), "{view}");
        }
        let grounds: BTreeSet<&str> = views.iter().filter_map(|view| view["ground"].as_str()).collect();
        assert_eq!(grounds.len(), 2, "{page}: light and dark have different grounds");
    }
    for page in &pages {
        let name = page.file_stem().expect("a name").to_string_lossy();
        for (width, scheme) in VIEWS {
            let image = fs::read(folder.join(format!("{name}-{width}-{scheme}.png"))).expect("a screenshot");
            assert!(image.starts_with(b"\x89PNG"), "{name}");
        }
    }
}

/// A page with each fault that the test above looks for.
#[test]
fn the_look_at_pages_finds_what_is_wrong_with_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("wrong.html");
    let drawing = |inner: &str| {
        format!(
            "<figure><figcaption>chart</figcaption><svg role=img viewBox='0 0 400 100' style='width:400px'>{inner}</svg>"
        )
    };
    let key = "<span class='key s0'><svg class=sample><path d=M0,0z /></svg>one</span>";
    let wrong = [
        ("<p style='color:#999'>faint</p>".to_owned(), "contrast 2.8 of \"faint\""),
        ("<p style='width:2000px'>wide</p>".to_owned(), "<p> ends at"),
        ("<script>console.error('loud')</script>".to_owned(), "loud"),
        ("<script>throw new Error('thrown')</script>".to_owned(), "Uncaught"),
        ("<img src=nothing.png>".to_owned(), "nothing.png"),
        ("<figure>blank</figure>".to_owned(), "no drawing in blank"),
        (drawing("<text x=9 y=50>here</text><text x=12 y=50>there</text>"), "\"here\" covers \"there\""),
        (drawing("<text x=380 y=50>outside</text>"), "\"outside\" leaves the drawing"),
        (drawing("<text x=9 y=50 font-size=5>small</text>"), "text of 5.0 px"),
        (drawing("<rect class=bar width=9 height=9 fill='#eee'/>"), "contrast 1.2 of a bar"),
        (drawing("<rect class=bar width=9 height=9 />"), "bars or intervals without words"),
        (drawing("<text x=9 y=50>nothing</text>"), "nothing is drawn"),
        (drawing("<path class='dot s1' d=M1,1z />") + "<div class=legend>" + key, "a point that the legend of chart"),
        (drawing("<polyline class='line s1' />") + "<div class=legend>" + key, "a line that the legend of chart"),
        (drawing("") + "<div class=legend>" + key + key, "two series with one shape"),
        (drawing("") + "<div class=legend><span class='key s0'>one</span>", "a series without a shape"),
        ("short".to_owned(), "the page is empty"),
    ];
    let body: String = wrong.iter().map(|(body, _)| format!("<div>{body}</div>\n")).collect();
    fs::write(&page, format!("<!doctype html><meta name=viewport content='width=device-width'>{body}"))
        .expect("written");
    let views = views(folder.path(), &[page]);
    assert_eq!(views.len(), VIEWS.len());
    for view in &views {
        for (_, words) in &wrong {
            assert!(faults(view).iter().any(|fault| fault.contains(words)), "{words}: {view:#}");
        }
    }
}
