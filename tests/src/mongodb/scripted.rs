//! The scripted server of the lab as a process: `weir lab origin mongodb`.

use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use weir_mongodb_codec::bson::Writer;

use crate::deadline::until_true;
use crate::gateway::program;
use crate::mongodb::wire::{Reply, Wire};
use crate::port;
use crate::stream::Address;

/// Documents of each collection, and the size of each: a result of some batches.
const WORDS: [&str; 4] = ["--documents", "500", "--payload", "300"];

/// A running server. It ends with this value.
pub struct Scripted {
    child: Child,
    /// Where it listens.
    pub address: Address,
    words: Vec<String>,
}

impl Scripted {
    /// Starts one with further words on its command line.
    ///
    /// # Panics
    /// If it does not listen.
    #[must_use]
    pub fn start(words: &[&str]) -> Self {
        let address = Address::port(port::free());
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        Self { child: run(&address, &words), address, words }
    }

    /// Starts one that clients take for a mongos.
    ///
    /// # Panics
    /// As [`Scripted::start`].
    #[must_use]
    pub fn mongos() -> Self {
        Self::with_face("mongos", &[])
    }

    /// The same, and it stores documents.
    ///
    /// # Panics
    /// As [`Scripted::start`].
    #[must_use]
    pub fn storing_mongos() -> Self {
        Self::with_face("mongos", &["--store"])
    }

    /// Starts one that clients may take for a mongos behind a load balancer.
    ///
    /// # Panics
    /// As [`Scripted::start`].
    #[must_use]
    pub fn load_balanced() -> Self {
        Self::with_face("loadBalancer", &[])
    }

    /// The same, and it stores documents.
    ///
    /// # Panics
    /// As [`Scripted::start`].
    #[must_use]
    pub fn storing_load_balanced() -> Self {
        Self::with_face("loadBalancer", &["--store"])
    }

    fn with_face(kind: &str, words: &[&str]) -> Self {
        let server = Self::start(words);
        server.set_face(|face| face.string("kind", kind));
        server
    }

    /// Starts the members of a replica set, of which the first one is the primary.
    ///
    /// # Panics
    /// As [`Scripted::start`].
    #[must_use]
    pub fn set(count: usize) -> Vec<Self> {
        let members: Vec<Self> = (0..count).map(|_| Self::start(&[])).collect();
        Self::elect(&members, Some(0), 1);
        members
    }

    /// Makes one of the members their primary, or none.
    ///
    /// # Panics
    /// If one of them does not answer.
    pub fn elect(members: &[Self], primary: Option<usize>, election: i64) {
        let hosts: Vec<String> = members.iter().map(|member| member.address.text()).collect();
        for member in members {
            member.set_face(|face| {
                face.string("kind", "member");
                face.string("set", "rs");
                face.array("hosts", &hosts, |array, name, host| array.string(name, host));
                face.string("me", member.address.text());
                if let Some(primary) = primary {
                    face.string("primary", &hosts[primary]);
                }
                face.int64("election", election);
            });
        }
    }

    fn set_face(&self, write: impl FnOnce(&mut Writer<'_>)) {
        let reply = self.control(|body| body.document("face", write));
        assert!(reply.is_ok(), "the face of the scripted server: {reply:?}");
    }

    /// The counts of the server.
    ///
    /// # Panics
    /// If it does not answer.
    #[must_use]
    pub fn counts(&self) -> Reply {
        self.control(|_| {})
    }

    fn control(&self, write: impl FnOnce(&mut Writer<'_>)) -> Reply {
        let mut wire = Wire::connect(self.address.tcp().port());
        wire.call(|body| {
            body.int32("weirOrigin", 1);
            write(body);
            body.string("$db", "admin");
        })
    }

    /// Ends the process at once: the kernel resets its connections.
    ///
    /// # Panics
    /// If it cannot be ended.
    pub fn kill(&mut self) {
        self.child.kill().expect("a child may be killed");
        self.child.wait().expect("a child ends");
    }

    /// Starts it again on its port. It has forgotten everything.
    ///
    /// # Panics
    /// If it does not listen.
    pub fn start_again(&mut self) {
        self.child = run(&self.address, &self.words);
    }
}

fn run(address: &Address, words: &[String]) -> Child {
    let mut command = Command::new(program());
    command.args(["lab", "origin", "mongodb", "--bind", &address.text()]).args(WORDS).args(words);
    let child = command.stdout(Stdio::null()).spawn().expect("the scripted server starts");
    until_true("the scripted server to listen", || TcpStream::connect(address.tcp()).is_ok());
    child
}

impl Drop for Scripted {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
