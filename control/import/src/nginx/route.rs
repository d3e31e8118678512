//! The route of a location: its target, its settings and its headers, or those of the named location that `try_files` leads to.

use super::Importer;
use super::action::{self, LocationAction};
use super::location::Location;
use super::scope::Scope;
use super::settings::{Settings, difference};
use super::site::Site;
use super::syntax::Directive;
use super::unknown::{self, Context};
use crate::model::{PathMatch, Route, Target};
use crate::note::{Mistake, Note};
use crate::toml::Value;

impl<'c> Importer<'c> {
    /// Without files, `try_files` always leads to its named location, with all that stands there.
    pub(super) fn location(&mut self, one: &Location<'c>, site: &Site<'c>) -> Result<(), Mistake> {
        let unknown = |of: &Directive| unknown::note(of, Context::Location);
        let mut notes: Vec<Note> = one.scope.own().iter().filter_map(unknown).collect();
        let is_redirect = |of: &Directive| {
            action::redirect_of_rewrite(of, site).is_some_and(|(path, _)| action::takes_all(&path, one))
        };
        let ends =
            ["internal", "return", "proxy_pass", "grpc_pass"].iter().any(|name| one.scope.find_own(name).is_some())
                || action::redirects(one).any(is_redirect);
        let Some((of, named)) = fallback(&one.scope, site).filter(|_| !ends) else {
            return self.route_of(one, None, site, notes);
        };
        notes.retain(|note| note.place != of.place || note.directive != of.text());
        notes.push(files_note(of, named));
        notes.extend(named.body().iter().filter_map(unknown));
        for of in action::changes(one) {
            let why = "the path is not rewritten before it goes to the named location";
            notes.push(Note::new(&of.place, of.text(), why, "a rewrite in the named location"));
        }
        let scope = site.scope.inner(named.body());
        let there = Location { path: one.path.clone(), text: one.text.clone(), scope, directive: one.directive };
        self.route_of(&there, Some(&one.scope), site, notes)
    }

    /// Makes the route of a location. `outer` is the place whose `try_files` leads to it.
    pub(super) fn route_of(
        &mut self,
        one: &Location<'c>,
        outer: Option<&Scope<'c>>,
        site: &Site<'c>,
        mut notes: Vec<Note>,
    ) -> Result<(), Mistake> {
        let answer = self.answer(one, site, &mut notes)?;
        let LocationAction { target, rewrite, host } = answer;
        let is_proxy = matches!(target, Target::Upstream(_));
        let suffix = if one.path == PathMatch::Any { String::new() } else { format!("-{}", one.text) };
        let mut route = Route::new(self.route_names.unique(&format!("{}{suffix}", site.name)), target);
        route.path = one.path.clone();
        let mut settings = self.settings_of(one, outer, &mut notes)?;
        let mut base = site.base.clone();
        if !is_proxy {
            // For a response that the gateway itself makes, only the policies matter.
            settings.retain(|(key, _)| is_policy(key));
            base.retain(|(key, _)| is_policy(key));
        }
        for (key, value) in difference(&settings, &base) {
            route.more.set(key, value);
        }
        if let Some(log) = one.scope.find_own("access_log") {
            let why = "applies to the whole listener, with the value of the default server of its address";
            notes.push(Note::new(&log.place, log.text(), why, "access_log_sample of a [[listener]]"));
        }
        let mut changes = rewrite;
        if is_proxy {
            self.request_headers(one, site, host, &mut changes, &mut route, &mut notes);
        }
        if !changes.is_empty() {
            route.more.set("rewrite", Value::Inline(changes));
        }
        self.response_headers(one, is_proxy, &mut route, &mut notes);
        route.notes = notes;
        self.config.routes.push(route);
        Ok(())
    }

    /// The settings for the requests of a location. nginx checks the limits and policies of `outer` before `try_files` leads to
    /// the named location.
    fn settings_of(
        &self,
        one: &Location<'c>,
        outer: Option<&Scope<'c>>,
        notes: &mut Vec<Note>,
    ) -> Result<Settings, Mistake> {
        let mut settings = self.settings(&one.scope, notes)?;
        let Some(outer) = outer else { return Ok(settings) };
        for (key, value) in self.settings(outer, notes)? {
            if key != "request_body_bytes_max" && !is_policy(key) {
                continue;
            }
            match settings.iter_mut().find(|(own, _)| *own == key) {
                Some((_, own)) if *own != value => {
                    if is_policy(key) {
                        let why =
                            format!("{key} of the location and of its named location differ; the first value is used");
                        notes.push(Note::new(
                            &one.directive.place,
                            one.directive.text(),
                            why,
                            "policies of a [[route]]",
                        ));
                    }
                    *own = value;
                }
                Some(_) => {}
                None => settings.push((key, value)),
            }
        }
        Ok(settings)
    }
}

/// Whether a key decides who is served.
fn is_policy(key: &str) -> bool {
    matches!(key, "ip_filter" | "basic_auth" | "rate_limit")
}

/// The `try_files` of a place, and the named location that it ends with.
pub(super) fn fallback<'c>(scope: &Scope<'c>, site: &Site<'c>) -> Option<(&'c Directive, &'c Directive)> {
    let of = scope.find_own("try_files")?;
    let name = of.args.last().filter(|name| name.starts_with('@'))?;
    let named = site.scope.own().iter().find(|one| one.name == "location" && one.first() == name)?;
    Some((of, named))
}

pub(super) fn files_note(of: &Directive, named: &Directive) -> Note {
    let why = format!("Weir serves no files: all requests go where {} sends them", named.first());
    Note::new(&of.place, of.text(), why, "an origin that serves the files")
}
