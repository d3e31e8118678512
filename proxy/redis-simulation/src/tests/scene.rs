//! A session that is spoken to in lines.

use weir_redis_session::settings::RedisListenerSettings;

use crate::Simulation;

/// One client and what it says.
pub(super) struct Scene(pub(super) Simulation);

impl Scene {
    pub(super) fn new() -> Self {
        Self::with(RedisListenerSettings::default())
    }

    pub(super) fn with(settings: RedisListenerSettings) -> Self {
        Self(Simulation::new(settings))
    }

    /// A listener with the password `secret`.
    pub(super) fn guarded() -> Self {
        Self::with(RedisListenerSettings { password: Some("secret".to_owned().into()), ..Default::default() })
    }

    /// A listener in front of `shards` servers; a key is on the shard of the sum of its bytes.
    pub(super) fn sharded(shards: u16) -> Self {
        let scene = Self::new();
        scene.0.world.set_shards(shards);
        scene
    }

    /// As [`Scene::sharded`], of a cluster.
    pub(super) fn cluster(nodes: u16) -> Self {
        let scene = Self::sharded(nodes);
        scene.0.world.set_cluster();
        scene
    }

    pub(super) fn resp3() -> Self {
        let mut scene = Self::new();
        assert!(scene.says("HELLO 3").starts_with("%7\r\n"));
        scene
    }

    /// Sends lines of words as commands, and gives what the client reads when nothing happens any more.
    pub(super) fn says(&mut self, lines: &str) -> String {
        self.sends(&wire(lines))
    }

    pub(super) fn sends(&mut self, bytes: &[u8]) -> String {
        self.0.send(bytes);
        self.reads()
    }

    /// Sends bytes in pieces, each when all before it is done with.
    pub(super) fn drips(&mut self, bytes: &[u8], piece: usize) -> String {
        bytes.chunks(piece).map(|piece| self.sends(piece)).collect()
    }

    pub(super) fn reads(&mut self) -> String {
        text(&self.0.settle())
    }

    /// Sends lines without anything else happening than their arrival. Gives what is readable at once.
    pub(super) fn blurts(&mut self, lines: &str) -> String {
        self.0.send(&wire(lines));
        self.arrives()
    }

    pub(super) fn arrives(&mut self) -> String {
        self.0.wake();
        while self.0.arrive(usize::MAX) {}
        text(&self.0.world.read_output(usize::MAX))
    }

    /// The server of the only lane executes and answers one command.
    pub(super) fn serves_one(&mut self) -> String {
        self.0.flush(0);
        self.0.execute(0);
        self.0.deliver(0, usize::MAX);
        self.arrives()
    }

    /// A message of another client.
    pub(super) fn publishes(&mut self, channel: &str, payload: &str) {
        self.0.world.feeds().publish_from_outside(channel.as_bytes(), payload.as_bytes());
    }

    /// The blocked command gets its data.
    pub(super) fn releases(&mut self) {
        for lane in 0..self.0.world.lane_count() {
            self.0.world.with_lane(lane, |lane, server| {
                lane.speak(|connection, out| connection.release(server, true, out));
            });
        }
    }

    pub(super) fn is_pinned(&self) -> bool {
        self.0.world.is_pinned()
    }

    /// Lanes given back clean, and closed.
    pub(super) fn given_back(&self) -> (u64, u64) {
        let [_, clean, closed, _] = self.0.world.pins();
        (clean, closed)
    }
}

/// Lines of words as commands.
pub(super) fn wire(lines: &str) -> Vec<u8> {
    let mut wire = Vec::new();
    for line in lines.split('\n').map(str::trim).filter(|line| !line.is_empty()) {
        let words: Vec<&str> = line.split(' ').collect();
        weir_resp::encode::command(&mut wire, words);
    }
    wire
}

pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A bulk string.
pub(super) fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}
