//! Words, numbers and signs of a text of SQL. Comments and blanks are left out.

/// A part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// A name or a key word, as it is written.
    Word(&'a [u8]),
    /// A name in double quotes, without them.
    Quoted(&'a [u8]),
    /// Digits.
    Number(&'a [u8]),
    /// A text in single quotes, without them; a doubled quote stays doubled.
    Text(&'a [u8]),
    /// `$1`
    Parameter(u16),
    /// Any other sign.
    Sign(u8),
}

impl Token<'_> {
    /// The word is this key word, in any case.
    pub(super) fn is(&self, word: &str) -> bool {
        matches!(self, Self::Word(found) if found.eq_ignore_ascii_case(word.as_bytes()))
    }
}

/// The tokens of a text, in order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tokens<'a> {
    rest: &'a [u8],
}

impl<'a> Tokens<'a> {
    pub(super) const fn new(text: &'a [u8]) -> Self {
        Self { rest: text }
    }

    /// The bytes that no token was taken from yet.
    pub(super) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn skip_blanks(&mut self) {
        loop {
            self.rest = self.rest.trim_ascii_start();
            let end = match self.rest {
                [b'-', b'-', comment @ ..] => {
                    2 + comment.iter().position(|byte| *byte == b'\n').unwrap_or(comment.len())
                }
                [b'/', b'*', comment @ ..] => {
                    2 + comment.windows(2).position(|two| two == b"*/").map_or(comment.len(), |at| at + 2)
                }
                _ => return,
            };
            self.rest = &self.rest[end..];
        }
    }

    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(count);
        self.rest = rest;
        taken
    }

    /// As many bytes as fit, from the second one on.
    fn while_byte(&mut self, fits: impl Fn(&u8) -> bool) -> &'a [u8] {
        let count = 1 + self.rest[1..].iter().take_while(|byte| fits(byte)).count();
        self.take(count)
    }

    /// From one quote to the next that is not doubled.
    fn quoted(&mut self, quote: u8) -> &'a [u8] {
        let mut end = 1;
        while end < self.rest.len() {
            if self.rest[end] != quote {
                end += 1;
            } else if self.rest.get(end + 1) == Some(&quote) {
                end += 2;
            } else {
                break;
            }
        }
        let end = end.min(self.rest.len());
        let text = &self.take(end)[1..];
        self.rest = self.rest.get(1..).unwrap_or_default();
        text
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        self.skip_blanks();
        Some(match *self.rest.first()? {
            b'\'' => Token::Text(self.quoted(b'\'')),
            b'"' => Token::Quoted(self.quoted(b'"')),
            b'0'..=b'9' => Token::Number(self.while_byte(u8::is_ascii_digit)),
            b'$' => {
                let digits = &self.while_byte(u8::is_ascii_digit)[1..];
                match std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()) {
                    Some(number) => Token::Parameter(number),
                    None => Token::Sign(b'$'),
                }
            }
            byte if byte.is_ascii_alphabetic() || byte == b'_' || byte >= 0x80 => {
                Token::Word(self.while_byte(|byte| byte.is_ascii_alphanumeric() || *byte == b'_' || *byte >= 0x80))
            }
            _ => Token::Sign(self.take(1)[0]),
        })
    }
}

/// The statements of a text, which `;` divides; those without a token are left out.
pub(super) fn statements(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            let (begin, mut tokens) = (rest, Tokens::new(rest));
            let mut is_empty = true;
            let mut end = None;
            loop {
                match tokens.next() {
                    Some(Token::Sign(b';')) => {
                        end = Some(begin.len() - tokens.rest().len() - 1);
                        break;
                    }
                    Some(_) => is_empty = false,
                    None => break,
                }
            }
            rest = tokens.rest();
            match (is_empty, end) {
                (false, end) => return Some(&begin[..end.unwrap_or(begin.len())]),
                (true, Some(_)) => {}
                (true, None) => return None,
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_blanks_and_quotes_hide_signs() {
        let text = b"select/* ; */ 'a;''b', \"c;\" -- ;\n, $12, 34 as x";
        let found: Vec<_> = Tokens::new(text).collect();
        let wanted = [
            Token::Word(b"select"),
            Token::Text(b"a;''b"),
            Token::Sign(b','),
            Token::Quoted(b"c;"),
            Token::Sign(b','),
            Token::Parameter(12),
            Token::Sign(b','),
            Token::Number(b"34"),
            Token::Word(b"as"),
            Token::Word(b"x"),
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn statements_end_at_signs_outside_of_quotes() {
        let all = |text: &'static str| -> Vec<String> {
            statements(text.as_bytes()).map(|one| String::from_utf8_lossy(one).trim().to_owned()).collect()
        };
        assert_eq!(all("select 1; select ';' ; ;; -- no\n"), ["select 1", "select ';'"]);
        assert_eq!(all("select 1"), ["select 1"]);
        assert!(all("").is_empty() && all(" ; -- x").is_empty() && all("/* x */").is_empty());
    }

    #[test]
    fn an_unfinished_quote_ends_with_the_text() {
        for text in [&b"'abc"[..], b"'", b"\"", b"'a''", b"/* x", b"-- x", b"$", b"$99999"] {
            assert!(Tokens::new(text).count() <= 2, "{text:?}");
            assert!(statements(text).count() <= 1);
        }
    }
}
