//! The length of functions, read from the form that rustfmt gives them.

use super::sources::SourceFile;

/// Lines of a function, from the one with `fn` to its closing brace. A longer one is more than a screen, and hides a second function.
const FUNCTION_LINES_MAX: usize = 70;

/// Folders of tests and measurements. A test may be a long story.
const EXEMPT_FOLDERS: [&str; 3] = ["tests", "benches", "fuzz"];

/// A line for each function that is too long. Test code is exempt.
pub fn violations(files: &[SourceFile]) -> Vec<String> {
    let sources =
        files.iter().filter(|file| file.name.ends_with(".rs") && !is_test_code(&file.name) && !file.is_generated());
    sources.flat_map(|file| long_functions(&file.name, &file.text)).collect()
}

/// Whether the whole file is test code: in such a folder, or as a module of tests beside its subject.
pub(super) fn is_test_code(name: &str) -> bool {
    let (folder, file) = name.rsplit_once('/').unwrap_or(("", name));
    let is_exempt = folder.split('/').any(|part| EXEMPT_FOLDERS.contains(&part));
    is_exempt || file == "tests.rs" || file.ends_with("_tests.rs")
}

fn long_functions(name: &str, text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        if line.trim_start() == "#[cfg(test)]" {
            at = end_of_item(&lines, at);
        } else if let Some(function) = function_name(line) {
            let count = end_of_item(&lines, at) - at + 1;
            if count > FUNCTION_LINES_MAX {
                let place = format!("{name}:{}", at + 1);
                found.push(format!(
                    "{place}: `{function}` has {count} lines; the most is {FUNCTION_LINES_MAX}: split it by concept"
                ));
            }
        }
        // The functions inside one are looked at too.
        at += 1;
    }
    found
}

/// The name of the function that begins on this line.
fn function_name(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    loop {
        if let Some(behind) = rest.strip_prefix("fn ") {
            return behind.split(['(', '<']).next();
        }
        let (word, behind) = rest.split_once(' ')?;
        let is_qualifier = matches!(word, "pub" | "const" | "async" | "unsafe" | "extern" | "default")
            || (word.starts_with('"') && word.ends_with('"'));
        rest = match word.starts_with("pub(") {
            // `pub(in a::b)` has a blank of its own.
            true => rest.split_once(") ")?.1,
            false if is_qualifier => behind,
            false => return None,
        };
    }
}

/// The last line of the item that begins at `start`, its attributes included: the first with its indentation that closes a brace
/// or ends a declaration.
fn end_of_item(lines: &[&str], start: usize) -> usize {
    let indentation = |line: &str| line.len() - line.trim_start().len();
    let own = indentation(lines[start]);
    let is_end = |line: &&str| indentation(line) == own && line.ends_with(['}', ';']);
    lines[start..].iter().position(is_end).map_or(lines.len() - 1, |offset| start + offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A function with so many lines in all, each indented by `indentation`.
    fn function(head: &str, lines: usize, indentation: &str) -> String {
        let body = format!("{indentation}    work();\n").repeat(lines - 2);
        format!("{indentation}{head} {{\n{body}{indentation}}}\n")
    }

    fn found(text: &str) -> Vec<String> {
        long_functions("a.rs", text)
    }

    #[test]
    fn a_function_over_a_screen_is_found_with_its_place() {
        let text =
            format!("use x;\n\n{}", function("pub(in a::b) async fn long<T>(one: T)", FUNCTION_LINES_MAX + 1, ""));
        let wanted = format!("a.rs:3: `long` has 71 lines; the most is {FUNCTION_LINES_MAX}: split it by concept");
        assert_eq!(found(&text), [wanted]);
        assert!(found(&function("fn fits()", FUNCTION_LINES_MAX, "")).is_empty());
    }

    #[test]
    fn methods_and_functions_inside_functions_count_by_themselves() {
        let method = function("const unsafe extern \"C\" fn method(&self)", FUNCTION_LINES_MAX + 1, "    ");
        let short = function("fn short(&self)", 10, "    ");
        assert_eq!(found(&format!("impl X {{\n{short}{method}{short}}}\n")).len(), 1);
        // The outer one is too long as well, for the inner one is a part of it.
        assert_eq!(found(&format!("fn outer() {{\n{method}}}\n")).len(), 2);
    }

    #[test]
    fn the_lines_of_a_signature_count_and_a_declaration_has_no_body() {
        let signature = "fn many(\n    one: u8,\n    two: u8,\n) -> u8\nwhere\n    u8: Copy,\n{\n";
        let text = |lines: usize| format!("{signature}{}}}\n", "    work();\n".repeat(lines - 8));
        assert!(found(&text(FUNCTION_LINES_MAX)).is_empty());
        assert_eq!(found(&text(FUNCTION_LINES_MAX + 1)).len(), 1);
        let declarations =
            "    fn one(&self);\n    fn two(\n        &self,\n    ) -> u8;\n    fn three() {}\n".repeat(30);
        assert!(found(&format!("trait X {{\n{declarations}}}\n")).is_empty());
    }

    #[test]
    fn test_code_is_exempt() {
        let long = function("fn long()", FUNCTION_LINES_MAX + 1, "    ");
        assert!(found(&format!("#[cfg(test)]\nmod tests {{\n{long}}}\n")).is_empty());
        // Later bytes are not.
        assert_eq!(found(&format!("#[cfg(test)]\nmod tests;\n\nimpl X {{\n{long}}}\n")).len(), 1);
        let file = |name: &str| SourceFile { name: name.into(), path: name.into(), text: long.clone() };
        let exempt =
            ["tests/src/a.rs", "a/tests/it/b.rs", "a/benches/b.rs", "fuzz/a.rs", "a/src/tests.rs", "a/src/b_tests.rs"];
        assert!(violations(&exempt.map(file)).is_empty());
        assert_eq!(violations(&["a/src/b.rs", "a/src/latest/b.rs"].map(file)).len(), 2);
    }
}
