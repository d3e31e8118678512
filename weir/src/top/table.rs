//! A table whose columns depend on the width, and how the rows of a frame are shared out among tables.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table};

/// One column of a table of `R`.
pub(super) struct Column<R> {
    pub(super) title: &'static str,
    /// Columns of the terminal; 0: what the others leave over.
    pub(super) width: u16,
    /// Narrowest table that shows it.
    pub(super) from_width: u16,
    /// Widest table that shows it.
    pub(super) to_width: u16,
    /// Whether a table with these rows shows it.
    pub(super) is_wanted: fn(&[R]) -> bool,
    pub(super) alignment: Alignment,
    pub(super) cell: fn(&R) -> Span<'static>,
}

/// A right-aligned column that is always there, as numbers are.
pub(super) const fn number<R>(title: &'static str, width: u16, cell: fn(&R) -> Span<'static>) -> Column<R> {
    Column { title, width, from_width: 0, to_width: u16::MAX, is_wanted: |_| true, alignment: Alignment::Right, cell }
}

/// A left-aligned column that is always there.
pub(super) const fn text<R>(title: &'static str, width: u16, cell: fn(&R) -> Span<'static>) -> Column<R> {
    Column { title, width, from_width: 0, to_width: u16::MAX, is_wanted: |_| true, alignment: Alignment::Left, cell }
}

impl<R> Column<R> {
    /// The column, only in tables at least this wide.
    pub(super) const fn from(mut self, width: u16) -> Self {
        self.from_width = width;
        self
    }

    /// The column, only in tables at most this wide.
    pub(super) const fn to(mut self, width: u16) -> Self {
        self.to_width = width;
        self
    }

    /// The column, only in tables whose rows want it.
    pub(super) const fn when(mut self, is_wanted: fn(&[R]) -> bool) -> Self {
        self.is_wanted = is_wanted;
        self
    }
}

/// Heading and rows of a table, as the frame shows it.
pub(super) struct Content<'a, R> {
    pub(super) columns: &'a [Column<R>],
    pub(super) rows: &'a [R],
    /// Rows scrolled past, if that many can be.
    pub(super) offset: usize,
    pub(super) heading: Style,
    /// Columns of the terminal that the rows leave to others: the table counts as that much wider.
    pub(super) spare: u16,
}

/// Draws a table into the area and gives the offset that was possible.
///
/// The first line is the heading. If not all rows fit, the last line tells how many there are before and behind.
pub(super) fn draw<R>(frame: &mut Frame<'_>, area: Rect, content: &Content<'_, R>) -> usize {
    let Content { columns, rows, .. } = content;
    let lines = usize::from(area.height.saturating_sub(1));
    let (offset, shown) = if rows.len() <= lines {
        (0, rows.len())
    } else {
        let shown = lines.saturating_sub(1);
        (content.offset.min(rows.len() - shown), shown)
    };
    let width = area.width.saturating_add(content.spare);
    let is_visible =
        |column: &&Column<R>| (column.from_width..=column.to_width).contains(&width) && (column.is_wanted)(rows);
    let visible: Vec<&Column<R>> = columns.iter().filter(is_visible).collect();
    let line = |column: &Column<R>, span: Span<'static>| Cell::from(Line::from(span).alignment(column.alignment));
    let heading = Row::new(visible.iter().map(|column| line(column, Span::raw(column.title)))).style(content.heading);
    let body = rows[offset..offset + shown]
        .iter()
        .map(|row| Row::new(visible.iter().map(|column| line(column, (column.cell)(row)))));
    let widths = visible.iter().map(|column| match column.width {
        0 => Constraint::Fill(1),
        width => Constraint::Length(width),
    });
    frame.render_widget(Table::new(body, widths).header(heading).column_spacing(1), area);
    if shown < rows.len() && lines > 0 {
        let behind = rows.len() - offset - shown;
        let [_rows, last] = Layout::vertical([Constraint::Min(0), Constraint::Length(1)]).areas(area);
        frame.render_widget(Paragraph::new(format!("… {offset} above, {behind} below")), last);
    }
    offset
}

/// Shares `room` lines out: nobody gets more than it wants, and who wants little is not cut for who wants much.
pub(super) fn share_out<const N: usize>(wants: [u16; N], room: u16) -> [u16; N] {
    let mut given = [0; N];
    let mut left = room;
    while left > 0 {
        let hungry = (0..N).filter(|&index| given[index] < wants[index]);
        let Some(least) = hungry.min_by_key(|&index| given[index]) else {
            break;
        };
        given[least] += 1;
        left -= 1;
    }
    given
}

#[cfg(test)]
mod tests {
    use super::share_out;

    #[test]
    fn room_for_all_gives_all_what_they_want() {
        assert_eq!(share_out([3, 5, 2], 20), [3, 5, 2]);
    }

    #[test]
    fn scarce_room_is_cut_from_the_largest() {
        assert_eq!(share_out([100, 2, 4], 12), [6, 2, 4]);
        assert_eq!(share_out([100, 100], 5), [3, 2]);
        assert_eq!(share_out([4, 4], 0), [0, 0]);
    }
}
