//! Tokens of clients: `project:environment.secret`.

use std::fmt;

use weir_base::Secret;
use weir_flags_codec::limits::TOKEN_BYTES_MAX;
use weir_flags_codec::tokens::ValidatedToken;

use crate::projects::Projects;

/// The type of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TokenType {
    /// A token of programs that evaluate flags themselves.
    Backend,
    /// A token of browsers and apps, which get results.
    Frontend,
    /// A token of the server's own API: no client of an edge has one.
    Admin,
}

impl TokenType {
    /// The type of a word: `client` is the older word for `backend`, and servers write it in small letters, in capitals, or with one.
    pub fn parse(word: &str) -> Option<Self> {
        let types = [("backend", Self::Backend), ("client", Self::Backend), ("frontend", Self::Frontend)];
        let types = types.into_iter().chain([("admin", Self::Admin)]);
        types.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(word)).map(|(_, kind)| kind)
    }

    /// The word in documents.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Backend => "backend",
            Self::Frontend => "frontend",
            Self::Admin => "admin",
        }
    }
}

/// The API that a request uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Api {
    /// Paths below `/api/client`.
    Client,
    /// Paths below `/api/frontend` and `/api/proxy`, and those of OFREP.
    Frontend,
}

/// A token that is none: its response is a 403. The text never has a part of the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenError {
    /// It is empty or has more than [`TOKEN_BYTES_MAX`] bytes.
    Length,
    /// A colon or a dot is missing, or a part is empty.
    Form,
    /// It has a blank or a control character.
    Character,
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Length => "a token is empty or too long",
            Self::Form => "a token has the form project:environment.secret",
            Self::Character => "a token has a blank or a control character",
        })
    }
}

impl std::error::Error for TokenError {}

/// A token with what is known of its rights.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    secret: Secret,
    /// `None`: not known before its server has validated it, or given by an operator for both APIs.
    kind: Option<TokenType>,
    /// `None`: one of an offline gateway, which has one environment.
    environment: Option<Box<str>>,
    projects: Projects,
}

/// The rights of a token, as `/edge/validate` responds with them.
impl From<&Token> for ValidatedToken {
    fn from(token: &Token) -> Self {
        Self {
            token: token.secret().expose_str().unwrap_or_default().to_owned(),
            kind: token.kind().map(|kind| kind.as_str().to_owned()),
            environment: token.environment().map(str::to_owned),
            projects: token.projects().names().map(str::to_owned).collect(),
            status: Some("Validated".to_owned()),
        }
    }
}

impl Token {
    /// Reads a token of a request: `project:environment.secret`, `*:environment.secret`, or `[]:environment.secret` for several projects, which
    /// its server knows. White space around it is left out.
    ///
    /// # Errors
    /// It is no token.
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        let text = checked(text)?;
        let (project, rest) = text.split_once(':').ok_or(TokenError::Form)?;
        let (environment, secret) = rest.split_once('.').ok_or(TokenError::Form)?;
        if project.is_empty() || environment.is_empty() || environment.contains(':') || secret.is_empty() {
            return Err(TokenError::Form);
        }
        let projects = if project == "[]" { Projects::Some(Box::default()) } else { Projects::new(&[project]) };
        Ok(Self { secret: text.into(), kind: None, environment: Some(environment.into()), projects })
    }

    /// Reads a token that an operator trusts without a check by the upstream: a frontend token, or `secret@environment`, whose request has the
    /// secret alone and sees all projects.
    ///
    /// # Errors
    /// It is neither.
    pub fn parse_trusted(text: &str) -> Result<Self, TokenError> {
        let token = Self::parse(text).or_else(|error| {
            let (secret, environment) = checked(text)?.split_once('@').ok_or(error)?;
            if secret.is_empty() || environment.is_empty() || environment.contains('@') {
                return Err(error);
            }
            let environment = Some(environment.into());
            Ok(Self { secret: secret.into(), kind: None, environment, projects: Projects::All })
        })?;
        Ok(Self { kind: Some(TokenType::Frontend), ..token.seeing_all_of_none() })
    }

    /// Reads a token of an offline gateway. One without the form of Unleash's tokens is taken as it is, and sees everything.
    ///
    /// # Errors
    /// It is empty, too long, or has a blank.
    pub fn parse_offline(text: &str, kind: Option<TokenType>) -> Result<Self, TokenError> {
        let token = match Self::parse(text) {
            Err(TokenError::Form) => {
                let secret = checked(text)?.into();
                Self { secret, kind: None, environment: None, projects: Projects::All }
            }
            other => other?,
        };
        Ok(Self { kind, ..token.seeing_all_of_none() })
    }

    /// Without a server that knows its projects, a token of several sees all.
    fn seeing_all_of_none(self) -> Self {
        let projects = if self.projects.is_empty() { Projects::All } else { self.projects };
        Self { projects, ..self }
    }

    /// The token that an upstream has validated, with the rights that the upstream names.
    ///
    /// # Errors
    /// The token is none, or its type is absent or not known: a token without a type would be one for both APIs.
    pub fn validated(response: &ValidatedToken) -> Result<Self, TokenError> {
        let parsed = Self::parse(&response.token).or_else(|_| Self::parse_offline(&response.token, None))?;
        let kind = response.kind.as_deref().and_then(TokenType::parse).ok_or(TokenError::Form)?;
        let environment = response.environment.as_deref().filter(|name| !name.is_empty()).map(Into::into);
        let projects = match &*response.projects {
            [] => parsed.projects,
            names => Projects::new(names),
        };
        Ok(Self { secret: parsed.secret, kind: Some(kind), environment: environment.or(parsed.environment), projects })
    }

    /// The same token with a type.
    #[must_use]
    pub fn with_type(self, kind: TokenType) -> Self {
        Self { kind: Some(kind), ..self }
    }

    /// The same token for both APIs.
    #[must_use]
    pub fn without_type(self) -> Self {
        Self { kind: None, ..self }
    }

    /// The text of the token, as requests have it.
    pub const fn secret(&self) -> &Secret {
        &self.secret
    }

    /// The type, if it is known.
    pub const fn kind(&self) -> Option<TokenType> {
        self.kind
    }

    /// The environment. `None`: the only one of an offline gateway.
    pub fn environment(&self) -> Option<&str> {
        self.environment.as_deref()
    }

    /// The projects. Empty before its server has validated a token of several.
    pub const fn projects(&self) -> &Projects {
        &self.projects
    }

    /// Whether it is the token of a request. The time depends on the length of the candidate alone.
    pub fn matches(&self, candidate: &str) -> bool {
        self.secret.matches(candidate.trim().as_bytes())
    }

    /// Whether requests with this token may use an API. A token without a type is one that an operator gave for both.
    pub fn may_use(&self, api: Api) -> bool {
        match (self.kind, api) {
            (None, _) | (Some(TokenType::Backend), Api::Client) | (Some(TokenType::Frontend), Api::Frontend) => true,
            (Some(_), _) => false,
        }
    }

    /// Whether this token sees all that the other does, so that no poll with the other is needed: same type, same environment, and all of its
    /// projects.
    pub fn subsumes(&self, other: &Self) -> bool {
        self.kind == other.kind && self.environment == other.environment && self.projects.include(&other.projects)
    }

    /// Whether a backend token covers a request with the other: same environment, and all of its projects. A strict gateway takes frontend
    /// tokens, too, if one of its own covers them.
    pub fn covers(&self, other: &Self) -> bool {
        self.environment == other.environment && self.projects.include(&other.projects)
    }
}

/// The text without white space around it, if it may be a token.
fn checked(text: &str) -> Result<&str, TokenError> {
    let text = text.trim();
    match text.len() {
        1..=TOKEN_BYTES_MAX => {}
        _ => return Err(TokenError::Length),
    }
    let is_bad = |character: char| character.is_whitespace() || character.is_control();
    if text.contains(is_bad) { Err(TokenError::Character) } else { Ok(text) }
}

/// Six letters of the secret from each side, or the selector of a newer one. A short secret shows nothing.
impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.secret.expose_str().unwrap_or_default();
        let Some((rights, secret)) = text.split_once('.').filter(|(rights, _)| rights.contains(':')) else {
            return f.write_str("****");
        };
        if let Some((selector, _)) = secret.strip_prefix("v2_").and_then(|rest| rest.split_once('_')) {
            return write!(f, "{rights}.v2_{selector}");
        }
        let shown = |range| secret.get(range).filter(|_| secret.len() >= 2 * SHOWN + SHOWN);
        match (shown(0..SHOWN), shown(secret.len().saturating_sub(SHOWN)..secret.len())) {
            (Some(front), Some(end)) => write!(f, "{rights}.{front}****{end}"),
            _ => write!(f, "{rights}.****"),
        }
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({self}, {:?}, {:?}, {:?})", self.kind, self.environment, self.projects)
    }
}

/// Letters of a secret that are shown at each end.
const SHOWN: usize = 6;
