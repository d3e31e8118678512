//! Objects of one session at the model server: parameters, objects, and the transaction that decides about them.

use std::collections::{BTreeMap, BTreeSet};

/// Parameters that the server reports, with their defaults.
pub const REPORTED: [(&str, &str); 3] =
    [("application_name", ""), ("client_encoding", "UTF8"), ("timezone", "Etc/UTC")];

/// Everything that a transaction can undo.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Objects {
    /// SET.
    pub settings: BTreeMap<String, String>,
    /// SET LOCAL.
    pub local: BTreeMap<String, String>,
    /// Temporary tables.
    pub temporary: BTreeSet<String>,
    /// Channels.
    pub channels: BTreeSet<String>,
    /// Cursors WITH HOLD.
    pub cursors: BTreeSet<String>,
}

/// The place with respect to transaction blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block {
    /// In none.
    None,
    /// In one.
    Open,
    /// In a failed one.
    Failed,
}

/// The state of one session.
#[derive(Clone, Debug)]
pub struct State {
    /// As it is now.
    pub objects: Objects,
    /// As it was when the transaction began; `None`: there is none.
    before: Option<Objects>,
    savepoints: Vec<(String, Objects)>,
    /// Explicit blocks.
    pub block: Block,
    /// Advisory locks of the session: no rollback releases them.
    pub locks: u32,
    /// A library is there that refuses all parameters of its prefix, `lib.`.
    pub has_library: bool,
}

impl State {
    /// As after a login.
    pub fn new() -> Self {
        Self {
            objects: Objects::default(),
            before: None,
            savepoints: Vec::new(),
            block: Block::None,
            locks: 0,
            has_library: false,
        }
    }

    /// The value of a parameter; empty if it has none.
    pub fn value(&self, name: &str) -> String {
        let default = REPORTED.iter().find(|(reported, _)| *reported == name).map_or("", |(_, default)| *default);
        let set = self.objects.local.get(name).or_else(|| self.objects.settings.get(name));
        set.map_or(default, String::as_str).to_owned()
    }

    /// The role whose rights decide; empty: that of the login.
    pub fn user(&self) -> String {
        let role = self.value("role");
        if role.is_empty() { self.value("session_authorization") } else { role }
    }

    /// A text as it comes in; `None`: its bytes are none of the client's encoding.
    pub fn decode(&self, bytes: &[u8]) -> Option<String> {
        match self.value("client_encoding").as_str() {
            "LATIN1" => Some(bytes.iter().copied().map(char::from).collect()),
            _ => String::from_utf8(bytes.to_vec()).ok(),
        }
    }

    /// A text as it goes out.
    pub fn encode(&self, text: &str) -> Vec<u8> {
        match self.value("client_encoding").as_str() {
            "LATIN1" => text.chars().map(|char| u8::try_from(u32::from(char)).unwrap_or(b'?')).collect(),
            _ => text.as_bytes().to_vec(),
        }
    }

    /// A function is called whose library has parameters of its own: those of its prefix are gone.
    pub fn load_library(&mut self) {
        self.has_library = true;
        self.objects.settings.retain(|name, _| !name.starts_with("lib."));
    }

    /// A statement is about to run.
    pub fn start(&mut self) {
        if self.before.is_none() {
            self.before = Some(self.objects.clone());
        }
    }

    /// The transaction commits.
    pub fn commit(&mut self) {
        self.objects.local.clear();
        self.before = None;
        self.savepoints.clear();
        self.block = Block::None;
    }

    /// The transaction is rolled back.
    pub fn rollback(&mut self) {
        if let Some(before) = self.before.take() {
            self.objects = before;
        }
        self.objects.local.clear();
        self.savepoints.clear();
        self.block = Block::None;
    }

    /// A statement failed.
    pub fn fail(&mut self) {
        match self.block {
            Block::None => self.rollback(),
            Block::Open | Block::Failed => self.block = Block::Failed,
        }
    }

    /// SAVEPOINT.
    pub fn savepoint(&mut self, name: &str) {
        self.savepoints.push((name.to_owned(), self.objects.clone()));
    }

    /// ROLLBACK TO; false: there is no such savepoint.
    pub fn rollback_to(&mut self, name: &str) -> bool {
        let Some(at) = self.savepoints.iter().rposition(|(other, _)| other == name) else { return false };
        self.savepoints.truncate(at + 1);
        self.objects = self.savepoints[at].1.clone();
        self.block = Block::Open;
        true
    }

    /// RELEASE; false: there is no such savepoint.
    pub fn release(&mut self, name: &str) -> bool {
        let Some(at) = self.savepoints.iter().rposition(|(other, _)| other == name) else { return false };
        self.savepoints.truncate(at);
        true
    }

    /// SET, SET LOCAL, RESET.
    pub fn set(&mut self, name: &str, value: Option<&str>, is_local: bool) {
        if name == "session_authorization" && !is_local {
            self.objects.settings.remove("role");
        }
        match value {
            Some(value) if is_local => drop(self.objects.local.insert(name.to_owned(), value.to_owned())),
            Some(value) => {
                self.objects.local.remove(name);
                self.objects.settings.insert(name.to_owned(), value.to_owned());
            }
            None => {
                self.objects.local.remove(name);
                self.objects.settings.remove(name);
            }
        }
    }

    /// CLOSE, which no rollback undoes; `None`: all.
    pub fn close_cursor(&mut self, name: Option<&str>) {
        let later = self.savepoints.iter_mut().map(|(_, objects)| objects);
        for objects in later.chain(&mut self.before).chain([&mut self.objects]) {
            match name {
                Some(name) => drop(objects.cursors.remove(name)),
                None => objects.cursors.clear(),
            }
        }
    }

    /// RESET ALL: users and roles stay.
    pub fn reset_all(&mut self) {
        let is_kept = |name: &str| matches!(name, "role" | "session_authorization");
        self.objects.settings.retain(|name, _| is_kept(name));
        self.objects.local.retain(|name, _| is_kept(name));
    }

    /// DISCARD ALL.
    pub fn discard_all(&mut self) {
        self.objects = Objects::default();
        self.locks = 0;
    }

    /// Nothing has changed that the end of a transaction decides about.
    pub fn is_outside(&self) -> bool {
        self.block == Block::None && self.before.is_none()
    }

    /// Nothing of a client is left but parameters.
    pub fn is_pristine(&self) -> bool {
        let Objects { local, temporary, channels, cursors, .. } = &self.objects;
        self.block == Block::None
            && self.before.is_none()
            && self.locks == 0
            && local.is_empty()
            && temporary.is_empty()
            && channels.is_empty()
            && cursors.is_empty()
    }
}

impl Default for State {
    fn default() -> Self {
        Self::new()
    }
}
