//! Tokens, and the flags that each may see.

use std::str::FromStr;

use weir_flags_codec::tokens::ValidatedToken;

/// The API that a token opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// That of backends: `/api/client`.
    Backend,
    /// That of browsers: `/api/frontend`.
    Frontend,
}

impl TokenKind {
    /// The kind of a word, as servers of several versions write it.
    fn of(word: &str) -> Option<Self> {
        match &*word.to_ascii_lowercase() {
            "backend" | "client" => Some(Self::Backend),
            "frontend" => Some(Self::Frontend),
            _ => None,
        }
    }

    /// As unleash-server writes it.
    fn word(self) -> &'static str {
        match self {
            Self::Backend => "client",
            Self::Frontend => "frontend",
        }
    }
}

/// A valid token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The whole text, `PROJECT:ENVIRONMENT.SECRET`.
    pub text: String,
    /// The API that it opens.
    pub kind: TokenKind,
    /// Its environment.
    pub environment: String,
    /// Its projects; `*` among them: all.
    pub projects: Vec<String>,
}

impl Token {
    /// The tokens of an origin that names none: `*:development.lab-backend`, `*:development.lab-frontend`, and the same for `production`.
    #[must_use]
    pub fn usual() -> Vec<Self> {
        let one = |environment: &str, kind: TokenKind, word: &str| Self {
            text: format!("*:{environment}.lab-{word}"),
            kind,
            environment: environment.to_owned(),
            projects: vec!["*".to_owned()],
        };
        let both = |environment| {
            [one(environment, TokenKind::Backend, "backend"), one(environment, TokenKind::Frontend, "frontend")]
        };
        ["development", "production"].into_iter().flat_map(both).collect()
    }

    /// As a reply of `/edge/validate` names it.
    pub(super) fn validated(&self) -> ValidatedToken {
        ValidatedToken {
            token: self.text.clone(),
            kind: Some(self.kind.word().to_owned()),
            environment: Some(self.environment.clone()),
            projects: self.projects.clone(),
            status: None,
        }
    }

    /// The token of such a reply. `None`: its kind is none of those that exist, or its text names no environment and the reply neither.
    pub(super) fn of_validated(validated: ValidatedToken) -> Option<Self> {
        let parsed = parts(&validated.token);
        let kind = TokenKind::of(validated.kind.as_deref().unwrap_or("client"))?;
        let environment = validated.environment.or_else(|| parsed.as_ref().map(|(_, name)| name.clone()))?;
        let projects = match (validated.projects, parsed) {
            (named, _) if !named.is_empty() => named,
            (_, Some((project, _))) => vec![project],
            _ => vec!["*".to_owned()],
        };
        Some(Self { text: validated.token, kind, environment, projects })
    }
}

/// `backend=PROJECT:ENVIRONMENT.SECRET`, or `frontend=…`. Several projects stand behind it: `backend=[]:ENVIRONMENT.SECRET@a,b`.
impl FromStr for Token {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let form = || "write backend=PROJECT:ENVIRONMENT.SECRET or frontend=PROJECT:ENVIRONMENT.SECRET".to_owned();
        let (kind, rest) = word.split_once('=').ok_or_else(form)?;
        let kind = TokenKind::of(kind).ok_or_else(form)?;
        let (text, several) = rest.split_once('@').map_or((rest, None), |(text, list)| (text, Some(list)));
        let (project, environment) = parts(text).ok_or_else(form)?;
        let projects = match several {
            Some(list) => list.split(',').map(str::to_owned).collect(),
            None => vec![project],
        };
        Ok(Self { text: text.to_owned(), kind, environment, projects })
    }
}

/// Project and environment in the text of a token.
fn parts(text: &str) -> Option<(String, String)> {
    let (project, rest) = text.split_once(':')?;
    let (environment, secret) = rest.split_once('.')?;
    let is_whole = !project.is_empty() && !environment.is_empty() && !secret.is_empty();
    is_whole.then(|| (project.to_owned(), environment.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_from_a_word_and_from_a_reply() {
        let token: Token = "backend=shop:production.s3cret".parse().expect("a token");
        assert_eq!((&*token.environment, &token.projects[..]), ("production", &["shop".to_owned()][..]));
        assert_eq!(Token::of_validated(token.validated()), Some(token));
        let several: Token = "frontend=[]:development.x@a,b".parse().expect("a token");
        assert_eq!(
            (&*several.text, several.projects.len(), several.kind),
            ("[]:development.x", 2, TokenKind::Frontend)
        );
        for wrong in ["", "backend", "admin=*:*.x", "backend=no-environment", "backend=a:b.", "backend=:b.c"] {
            assert!(wrong.parse::<Token>().is_err(), "{wrong}");
        }
        let bare =
            ValidatedToken { token: "secret".into(), kind: None, environment: None, projects: vec![], status: None };
        assert_eq!(Token::of_validated(bare), None);
    }
}
