//! Rows of text in columns, as Markdown that also reads well in a terminal.

/// A table under construction.
#[derive(Clone, Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these heads.
    #[must_use]
    pub fn new(heads: &[&str]) -> Self {
        Self { rows: vec![heads.iter().map(|head| (*head).to_owned()).collect()] }
    }

    /// Adds a row; it has as many cells as the head.
    pub fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.rows[0].len());
        self.rows.push(cells);
    }

    /// Whether nothing but the head is there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }

    /// The head, then the rows.
    #[must_use]
    pub fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }

    /// For each column, whether it holds numbers only.
    #[must_use]
    pub fn numbers(&self) -> Vec<bool> {
        let is_number = |column: usize| self.rows.len() > 1 && self.rows[1..].iter().all(|row| is_number(&row[column]));
        (0..self.rows[0].len()).map(is_number).collect()
    }

    /// Markdown with padded columns: numbers to the right, words to the left.
    #[must_use]
    pub fn markdown(&self) -> String {
        let columns = self.rows[0].len();
        let width = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0).max(3);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let numbers = self.numbers();
        let mut text = String::new();
        for (index, row) in self.rows.iter().enumerate() {
            for (column, cell) in row.iter().enumerate() {
                let blanks = " ".repeat(widths[column] - cell.chars().count());
                let padded = if numbers[column] { format!("{blanks}{cell}") } else { format!("{cell}{blanks}") };
                text.push_str(&format!("| {padded} "));
            }
            text.push_str("|\n");
            if index == 0 {
                for column in 0..columns {
                    let dashes = "-".repeat(widths[column] + 1);
                    text.push_str(&if numbers[column] { format!("|{dashes}:") } else { format!("|-{dashes}") });
                }
                text.push_str("|\n");
            }
        }
        text
    }
}

/// A figure, perhaps with a unit, or the words that stand for one that is missing. An address is none.
fn is_number(cell: &str) -> bool {
    let begins = cell.starts_with(|c: char| "~-0123456789".contains(c)) && !cell.contains(':');
    begins || cell.starts_with("n/a")
}

/// A number with the digits that it deserves; `-` for none.
#[must_use]
pub fn number(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value:.decimals$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_to_the_right_and_words_to_the_left() {
        let mut table = Table::new(&["arm", "µs"]);
        assert!(table.is_empty());
        table.row(vec!["weir".into(), "4.20".into()]);
        table.row(vec!["direct".into(), "-".into()]);
        let wanted = "| arm    |   µs |\n|--------|-----:|\n| weir   | 4.20 |\n| direct |    - |\n";
        assert_eq!(table.markdown(), wanted);
        let mut table = Table::new(&["target", "p99"]);
        table.row(vec!["127.0.0.1:80".into(), "n/a (n = 7)".into()]);
        table.row(vec!["-".into(), "0.250".into()]);
        assert_eq!(table.numbers(), [false, true]);
    }

    #[test]
    fn a_missing_number_is_a_dash() {
        assert_eq!((number(None, 2), number(Some(1.256), 2)), ("-".into(), "1.26".into()));
    }
}
