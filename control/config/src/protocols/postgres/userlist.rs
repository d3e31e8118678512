//! Users from a file in PgBouncer's format.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};
use weir_base::Secret;
use weir_postgres::settings::userlist;

use crate::document::Node;
use crate::reader::Reader;
use crate::secret::private_file;
use crate::texts::string;
use crate::value::{Shape, Value};

/// Bytes of such a file. Default 8 MiB: 65,536 users with SCRAM verifiers.
const USERLIST_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// A file of users.
#[derive(Clone, PartialEq)]
pub(crate) struct Userlist {
    /// As it is opened.
    path: PathBuf,
    /// Names and stored passwords.
    pub(crate) users: Vec<(Vec<u8>, Secret)>,
}

impl std::fmt::Debug for Userlist {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Userlist").field("path", &self.path).field("users", &self.users.len()).finish()
    }
}

impl Value for Userlist {
    fn shape() -> Shape {
        Shape::Text { what: "the path of a file of users", example: "/etc/weir/userlist.txt" }
    }

    fn read(node: &Node<'_>, _: Option<&RangeInclusive<Self>>, reader: &mut Reader<'_>) -> Option<Self> {
        let text = string(node, &Self::shape(), reader)?;
        if text.is_empty() || text.contains('\0') {
            reader.wrong_value(node, format!("`{}` is not a path", node.path), "write the path of a file of users");
            return None;
        }
        let contents = private_file(node, Path::new(text), USERLIST_BYTES_MAX, reader)?;
        let path = reader.directory.join(text);
        let contents = Secret::new(contents.bytes);
        match userlist(contents.expose()) {
            Ok(users) => Some(Self { path, users }),
            Err(error) => {
                let message = format!("`{}`: {}:{}: {}", node.path, path.display(), error.line, error.rule);
                reader.wrong_value(node, message, "write \"user\" \"password\", as in PgBouncer's auth_file");
                None
            }
        }
    }

    fn show(&self) -> Json {
        json!(self.path.display().to_string())
    }
}
