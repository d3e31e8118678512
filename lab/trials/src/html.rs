//! A page as one HTML file that needs no network: styles and charts are in it. It suits a phone and a dark room.

use std::fmt::Write as _;

use weir_knee::markdown::Table;

use crate::document::{Document, Element};

/// Characters of a cell that stays on one line.
const SHORT_CHARS: usize = 16;

const STYLE: &str = include_str!("report.css");

/// The page with its title.
pub(crate) fn page(title: &str, document: &Document) -> String {
    let mut body = String::new();
    for element in document.elements() {
        // Writing to a string does not fail.
        let _ = match element {
            Element::Heading(level, words) => writeln!(body, "<h{level}>{}</h{level}>", escaped(words)),
            Element::Text(words) => writeln!(body, "<p>{}</p>", escaped(words)),
            Element::Caveat(words) => writeln!(body, r#"<p class="caveat">{}</p>"#, escaped(words)),
            Element::Table(rows) => writeln!(body, "{}", table(rows)),
            Element::List(points) => {
                let points: String = points.iter().map(|point| format!("<li>{}</li>", escaped(point))).collect();
                writeln!(body, "<ul>{points}</ul>")
            }
            Element::Code(name, code) => writeln!(
                body,
                "<details><summary>{}</summary><pre>{}</pre></details>",
                escaped(name),
                escaped(code.trim_end())
            ),
            Element::Chart(chart) => {
                let (title, svg) = (escaped(chart.title()), chart.svg());
                writeln!(body, "<figure><figcaption>{title}</figcaption>{svg}</figure>")
            }
        };
    }
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n",
        escaped(title)
    )
}

fn table(table: &Table) -> String {
    let Some((heads, rows)) = table.rows().split_first() else { return String::new() };
    let numbers = table.numbers();
    let class = |column: usize, cell: &str| {
        if numbers[column] {
            r#" class="number""#
        } else if cell.chars().count() <= SHORT_CHARS {
            r#" class="short""#
        } else {
            ""
        }
    };
    let cells = |row: &[String], name: &str| {
        row.iter()
            .enumerate()
            .map(|(column, cell)| format!("<{name}{}>{}</{name}>", class(column, cell), escaped(cell)))
            .collect::<String>()
    };
    let body: String = rows.iter().map(|row| format!("<tr>{}</tr>", cells(row, "td"))).collect();
    format!(
        r#"<div class="wide"><table><thead><tr>{}</tr></thead><tbody>{body}</tbody></table></div>"#,
        cells(heads, "th")
    )
}

/// Text for element content and quoted attributes.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_files_cannot_become_markup() {
        let mut document = Document::default();
        let evil = "<script>alert('x')</script>".to_owned();
        document.add(Element::Heading(1, evil.clone()));
        document.add(Element::Code(evil.clone(), evil.clone()));
        document.add(Element::List(vec![evil.clone()]));
        let mut rows = Table::new(&["a"]);
        rows.row(vec![evil.clone()]);
        document.add(Element::Table(rows));
        let page = page(&evil, &document);
        assert!(!page.contains("<script"), "{page}");
        assert!(page.matches("&lt;script&gt;").count() >= 6);
        assert!(!page.contains("http"), "nothing is fetched");
    }
}
