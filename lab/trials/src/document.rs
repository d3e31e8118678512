//! A page of results: elements in order, rendered as Markdown or as HTML. Both say the same; only HTML has charts.

use std::fmt::Write as _;

use weir_knee::markdown::Table;

use crate::chart::Chart;

/// The parts of a page.
pub(crate) enum Element {
    /// A heading; 1 is the title of the page.
    Heading(u8, String),
    /// A paragraph.
    Text(String),
    /// A caveat that a reader has to know before the figures.
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

/// Elements in their order.
#[derive(Default)]
pub(crate) struct Document(Vec<Element>);

impl Document {
    pub(crate) fn add(&mut self, element: Element) {
        self.0.push(element);
    }

    pub(crate) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    pub(crate) fn elements(&self) -> &[Element] {
        &self.0
    }

    /// Every heading one level deeper: a page becomes a chapter.
    pub(crate) fn nested(mut self) -> Self {
        for element in &mut self.0 {
            if let Element::Heading(level, _) = element {
                *level += 1;
            }
        }
        self
    }

    pub(crate) fn markdown(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        for element in &self.0 {
            let _ = match element {
                Element::Heading(level, title) => write!(text, "{} {title}\n\n", "#".repeat((*level).into())),
                Element::Text(words) => write!(text, "{words}\n\n"),
                Element::Caveat(words) => write!(text, "> {words}\n\n"),
                Element::Table(table) => writeln!(text, "{}", table.markdown()),
                Element::List(points) => {
                    points.iter().try_for_each(|point| writeln!(text, "- {point}")).and_then(|()| writeln!(text))
                }
                Element::Code(title, code) => {
                    let fence = fence_for(code);
                    write!(text, "{title}:\n\n{fence}\n{}\n{fence}\n\n", code.trim_end())
                }
                Element::Chart(_) => Ok(()),
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
    fn elements_are_divided_by_empty_lines_and_code_keeps_its_backticks() {
        let mut page = Document::default();
        page.add(Element::Heading(1, "Title".to_owned()));
        page.add(Element::Caveat("mind this".to_owned()));
        page.add(Element::List(vec!["a".to_owned(), "b".to_owned()]));
        page.add(Element::Code("run".to_owned(), "```\n".to_owned()));
        let wanted = "## Title\n\n> mind this\n\n- a\n- b\n\nrun:\n\n````\n```\n````\n";
        assert_eq!(page.nested().markdown(), wanted);
    }
}
