//! Any bytes as the lines of a client.

use weir_echo::line::Lines;

/// Small, so that inputs reach it.
const LINE_BYTES_MAX: usize = 16;

/// Cuts change no line and no verdict; the lines are those that were sent; nothing longer than the limit is held or taken.
pub fn echo_lines(data: &[u8]) {
    let whole = read(data, data.len().max(1));
    for piece in [1, 2, 7, 64] {
        assert_eq!(read(data, piece), whole, "pieces of {piece}");
    }
    let (lines, is_too_long) = whole;
    let sent: Vec<&[u8]> = data.split(|byte| *byte == b'\n').collect();
    let (ended, open) = sent.split_at(sent.len() - 1);
    assert!(lines.iter().zip(ended).all(|(line, sent)| line == sent));
    let first_long = sent.iter().position(|line| line.len() > LINE_BYTES_MAX);
    assert_eq!(is_too_long, first_long.is_some());
    assert_eq!(lines.len(), first_long.unwrap_or(ended.len()), "{open:?}");
}

/// The lines, and whether one was too long.
fn read(data: &[u8], piece: usize) -> (Vec<Vec<u8>>, bool) {
    let (mut lines, mut found) = (Lines::new(LINE_BYTES_MAX), Vec::new());
    for bytes in data.chunks(piece) {
        lines.push(bytes);
        loop {
            match lines.take() {
                Ok(Some(line)) => found.push(line),
                Ok(None) => break,
                Err(_) => return (found, true),
            }
        }
        assert!(lines.len() <= LINE_BYTES_MAX);
    }
    (found, false)
}
