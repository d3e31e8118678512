//! Which route takes a request, and why: for operators, not for the request path.

use weir_http_codec::{Fields, HeadLimits, RequestHead, Version};

use crate::{facts::Facts, settings::HttpListenerSettings};

/// A request as an operator writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteQuery<'a> {
    /// GET, say.
    pub method: &'a str,
    /// With the port, if there is one.
    pub host: &'a str,
    /// The path, and the query if there is one.
    pub target: &'a str,
    /// Names and values.
    pub fields: Vec<(&'a str, &'a str)>,
}

/// The routes of a listener in the order in which they are tried, a line each.
pub fn table(settings: &HttpListenerSettings) -> String {
    settings.routes.table.dump()
}

/// The way to the route of a request.
///
/// # Errors
/// It would be refused before its route is looked for.
pub fn explain(settings: &HttpListenerSettings, query: &RouteQuery<'_>) -> Result<String, String> {
    let mut fields = Fields::new();
    query.fields.iter().for_each(|(name, value)| fields.push(name.as_bytes(), value.as_bytes()));
    let line = (query.method.as_bytes(), query.target.as_bytes(), query.host.as_bytes());
    let head = RequestHead::from_parts(Version::Http11, line, fields, true, &HeadLimits::default())
        .map_err(|error| format!("refused with {}: {}", error.status(), error.text()))?;
    let facts = Facts::of(&head, &settings.path_rules)
        .map_err(|refusal| format!("refused with {}: {}", refusal.status, refusal.text))?;
    Ok(settings.routes.table.explain(&facts).to_string())
}
