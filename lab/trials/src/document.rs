//! A page of results: parts in order, rendered as Markdown or as HTML. Both say the same; only HTML has charts.

use std::fmt::Write as _;

use weir_knee::markdown::Table;

use crate::chart::Chart;

/// A part of a page.
pub(crate) enum Part {
    /// A heading; 1 is the title of the page.
    Heading(u8, String),
    /// A paragraph.
    Text(String),
    /// What a reader has to know before the figures.
    Caveat(String),
    /// Rows and columns.
    Table(Table),
    /// Points.
    List(Vec<String>),
    /// Text as it is, under a title: a command, a configuration.
    Code(String, String),
    /// A drawing, for HTML only: every figure in it stands in a table too, or in the file that the page was made from.
    Chart(Chart),
}

/// Parts in their order.
#[derive(Default)]
pub(crate) struct Document(Vec<Part>);

impl Document {
    pub(crate) fn add(&mut self, part: Part) {
        self.0.push(part);
    }

    pub(crate) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    pub(crate) fn parts(&self) -> &[Part] {
        &self.0
    }

    /// Every heading one level deeper: a page becomes a chapter.
    pub(crate) fn nested(mut self) -> Self {
        for part in &mut self.0 {
            if let Part::Heading(level, _) = part {
                *level += 1;
            }
        }
        self
    }

    pub(crate) fn markdown(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        for part in &self.0 {
            let _ = match part {
                Part::Heading(level, title) => write!(text, "{} {title}\n\n", "#".repeat((*level).into())),
                Part::Text(words) => write!(text, "{words}\n\n"),
                Part::Caveat(words) => write!(text, "> {words}\n\n"),
                Part::Table(table) => writeln!(text, "{}", table.markdown()),
                Part::List(points) => {
                    points.iter().try_for_each(|point| writeln!(text, "- {point}")).and_then(|()| writeln!(text))
                }
                Part::Code(title, code) => {
                    let fence = fence_for(code);
                    write!(text, "{title}:\n\n{fence}\n{}\n{fence}\n\n", code.trim_end())
                }
                Part::Chart(_) => Ok(()),
            };
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
        text
    }
}

/// A fence that does not occur in the text.
fn fence_for(code: &str) -> String {
    let mut fence = "```".to_owned();
    while code.contains(&fence) {
        fence.push('`');
    }
    fence
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_divided_by_empty_lines_and_code_keeps_its_backticks() {
        let mut page = Document::default();
        page.add(Part::Heading(1, "Title".to_owned()));
        page.add(Part::Caveat("mind this".to_owned()));
        page.add(Part::List(vec!["a".to_owned(), "b".to_owned()]));
        page.add(Part::Code("run".to_owned(), "```\n".to_owned()));
        let wanted = "## Title\n\n> mind this\n\n- a\n- b\n\nrun:\n\n````\n```\n````\n";
        assert_eq!(page.nested().markdown(), wanted);
    }
}
