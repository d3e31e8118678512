//! A table whose columns depend on the width, and how the rows of a frame are shared out among tables.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table};

/// Columns of the terminal that a column without a width of its own keeps when others are added: a short name.
const FLEXIBLE_WIDTH_MIN: u16 = 10;

/// One column of a table of `R`.
pub(super) struct Column<R> {
    pub(super) title: &'static str,
    /// Columns of the terminal; 0: what the others leave over.
    pub(super) width: u16,
    /// Narrowest table that shows it.
    pub(super) from_width: u16,
    /// Widest table that shows it.
    pub(super) to_width: u16,
    /// 0: it is always shown. Others are shown in this order as long as they fit; those of one rank together.
    pub(super) rank: u8,
    /// Whether a table with these rows shows it.
    pub(super) is_wanted: fn(&[R]) -> bool,
    pub(super) alignment: Alignment,
    pub(super) cell: fn(&R) -> Span<'static>,
}

/// A right-aligned column that is always there, as numbers are.
pub(super) const fn number<R>(title: &'static str, width: u16, cell: fn(&R) -> Span<'static>) -> Column<R> {
    Column { alignment: Alignment::Right, ..text(title, width, cell) }
}

/// A left-aligned column that is always there.
pub(super) const fn text<R>(title: &'static str, width: u16, cell: fn(&R) -> Span<'static>) -> Column<R> {
    let (from_width, to_width) = (0, u16::MAX);
    Column { title, width, from_width, to_width, rank: 0, is_wanted: |_| true, alignment: Alignment::Left, cell }
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

    /// The column, only where it fits, behind those of a lower rank.
    pub(super) const fn rank(mut self, rank: u8) -> Self {
        self.rank = rank;
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
    let is_wanted =
        |column: &&Column<R>| (column.from_width..=column.to_width).contains(&area.width) && (column.is_wanted)(rows);
    let visible = fitting(columns.iter().filter(is_wanted).collect(), area.width);
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

/// Leaves out the columns of the ranks from the first one on that does not fit into `width`.
fn fitting<R>(mut columns: Vec<&Column<R>>, width: u16) -> Vec<&Column<R>> {
    // With the blank behind it.
    let of = |column: &Column<R>| if column.width == 0 { FLEXIBLE_WIDTH_MIN + 1 } else { column.width + 1 };
    let mut ranks: Vec<u8> = columns.iter().map(|column| column.rank).filter(|rank| *rank > 0).collect();
    ranks.sort_unstable();
    let fits =
        |last: u8| columns.iter().filter(|column| column.rank <= last).map(|one| of(one)).sum::<u16>() <= width + 1;
    let last = ranks.into_iter().take_while(|rank| fits(*rank)).last().unwrap_or(0);
    columns.retain(|column| column.rank <= last);
    columns
}

/// Divides `room` lines: no part gets more than it wants, and a small want is not cut in favour of a large one.
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
    fn room_for_all_gives_all_their_width() {
        assert_eq!(share_out([3, 5, 2], 20), [3, 5, 2]);
    }

    #[test]
    fn scarce_room_is_cut_from_the_largest() {
        assert_eq!(share_out([100, 2, 4], 12), [6, 2, 4]);
        assert_eq!(share_out([100, 100], 5), [3, 2]);
        assert_eq!(share_out([4, 4], 0), [0, 0]);
    }
}
