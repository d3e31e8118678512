//! A stream that a framer gets in pieces.

/// The result of a framer for a stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Followed<E> {
    /// Where each whole message ends.
    pub(crate) ends: Vec<usize>,
    /// Bytes that a gateway would have sent on.
    pub(crate) passed: usize,
    /// The framer refused the stream.
    pub(crate) error: Option<E>,
}

/// Gives a stream to a framer, `piece` bytes more each time. `next` takes from the bytes that were not passed: how many pass, and whether
/// a message ends with them. It holds back less than a head of `head` bytes.
pub(crate) fn follow<E>(
    stream: &[u8],
    piece: usize,
    head: usize,
    mut next: impl FnMut(&[u8]) -> Result<Option<(usize, bool)>, E>,
) -> Followed<E> {
    let mut followed = Followed { ends: Vec::new(), passed: 0, error: None };
    let mut seen = 0;
    while seen < stream.len() {
        seen = (seen + piece).min(stream.len());
        loop {
            match next(&stream[followed.passed..seen]) {
                Ok(Some((bytes, is_end))) => {
                    assert!(bytes > 0 && bytes <= seen - followed.passed);
                    followed.passed += bytes;
                    if is_end {
                        followed.ends.push(followed.passed);
                    }
                }
                Ok(None) => break,
                Err(error) => return Followed { error: Some(error), ..followed },
            }
        }
        assert!(seen - followed.passed < head);
    }
    followed
}
