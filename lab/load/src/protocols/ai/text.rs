//! The text of the lab's origin: groups of 16 bytes, each with the word of its request and its own number.

/// Bytes of a group: eight digits of the word, seven of the number, a blank.
const GROUP_BYTES: usize = 16;
const WORD_BYTES: usize = 8;

/// Bytes of text that are billed as one token.
const TOKEN_BYTES: usize = 4;

/// The digits of a word.
pub(super) type Word = [u8; WORD_BYTES];

/// The digits of the low 32 bits of a number.
pub(super) fn word(number: u64) -> Word {
    std::array::from_fn(|at| b"0123456789abcdef"[(number >> (28 - 4 * at)) as usize & 15])
}

/// Tokens that are billed for so many bytes.
pub(super) fn tokens_of(bytes: usize) -> u64 {
    bytes.div_ceil(TOKEN_BYTES) as u64
}

/// Numbers of the groups of the longest text, with room for a word in front of each.
#[derive(Debug)]
pub(super) struct Texts(Vec<u8>);

impl Texts {
    /// For texts of up to so many bytes.
    pub(super) fn new(bytes_max: usize) -> Self {
        let group = |number: usize| format!("00000000{number:07x} ").into_bytes();
        Self((0..bytes_max.div_ceil(GROUP_BYTES)).flat_map(group).collect())
    }

    /// Whether `piece` is what the text of `word` has from byte `begin` on.
    pub(super) fn has(&self, word: &Word, begin: usize, piece: &[u8]) -> bool {
        let Some(numbers) = self.0.get(begin..begin.saturating_add(piece.len())) else { return false };
        // Up to the end of the group in which the piece begins, then whole groups.
        let head = (GROUP_BYTES - begin % GROUP_BYTES) % GROUP_BYTES;
        let (first, rest) = piece.split_at(head.min(piece.len()));
        let (first_numbers, rest_numbers) = numbers.split_at(first.len());
        let is_first = first.iter().zip(first_numbers).enumerate().all(|(at, (byte, number))| {
            let place = begin % GROUP_BYTES + at;
            *byte == *word.get(place).unwrap_or(number)
        });
        is_first
            && rest.chunks(GROUP_BYTES).zip(rest_numbers.chunks(GROUP_BYTES)).all(|(group, numbers)| {
                let split = group.len().min(WORD_BYTES);
                group[..split] == word[..split] && group[split..] == numbers[split..]
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_right_at_its_own_place_alone() {
        let text = b"5eed00010000000 5eed00010000001 5eed00010000002 ";
        let (texts, word) = (Texts::new(48), word(0x5eed_0001));
        for begin in 0..48 {
            for end in begin..=48 {
                let piece = &text[begin..end];
                assert!(texts.has(&word, begin, piece), "{begin}..{end}");
                if end - begin >= 16 {
                    assert!(!texts.has(&word, (begin + 32) % 48, piece), "{begin}..{end} elsewhere");
                }
                if let Some((last, rest)) = piece.split_last() {
                    assert!(!texts.has(&word, begin, &[rest, &[last ^ 1]].concat()), "{begin}..{end} damaged");
                }
            }
        }
        assert!(!texts.has(&super::word(2), 0, text) && !texts.has(&word, 40, text), "another's, and too long");
    }
}
