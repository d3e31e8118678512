//! `weir lab origin mongodb`.

use std::{str::FromStr, time::Duration};

use clap::{Args, ValueEnum};
use weir_base::size::ByteSize;
use weir_engine::settings::Address;
use weir_origin::mongodb::{Compressor, Face, Member, MongodbOriginSettings};

/// Start a synthetic MongoDB server.
///
/// Every collection has documents with _id 1, 2, 3 and so on. The server computes each document from its _id and its namespace, so that a
/// client can detect a document of another request. It repeats the comment of a command in the reply. Cursors, sessions, transactions,
/// change streams, compression and fail points (configureFailPoint) behave as in MongoDB 8.0. Writes are confirmed, but not stored,
/// except with --store. The command {weirOrigin: 1} shows counts.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  weir lab origin mongodb --bind 127.0.0.1:27017\n  mongosh 'mongodb://127.0.0.1:27017/lab?directConnection=true' --eval 'db.documents.findOne({_id: 7})'\n  weir lab origin mongodb --face member --set rs0 --hosts 127.0.0.1:27017\n  weir lab load examples/lab/mongodb-find.toml --target 127.0.0.1:27017"
)]
pub struct MongodbArgs {
    /// Address, or unix:/path; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:27017", value_parser = Address::from_str)]
    bind: Address,

    /// Worker threads.
    #[arg(long, default_value_t = 1)]
    workers: usize,

    /// Store writes in memory. Collections then have only the documents that clients insert.
    #[arg(long)]
    store: bool,

    /// Documents of each collection.
    #[arg(long, default_value_t = 100_000)]
    documents: u64,

    /// Size of a document.
    #[arg(long, default_value = "1KiB", value_parser = ByteSize::from_str)]
    payload: ByteSize,

    /// maxWireVersion of hello: 21 is MongoDB 7.0, 25 is MongoDB 8.0.
    #[arg(long, default_value_t = 25)]
    wire: i32,

    /// Wait before each reply, for example 1ms.
    #[arg(long, value_parser = super::duration)]
    delay: Option<Duration>,

    /// Environment variable with the password that clients must prove by SCRAM-SHA-256 or SCRAM-SHA-1.
    #[arg(long, value_name = "NAME")]
    password_env: Option<String>,

    /// The place of the server in a deployment, as hello states it.
    #[arg(long, value_enum, default_value_t = FaceWord::Standalone)]
    face: FaceWord,

    /// Name of the replica set, for --face member.
    #[arg(long, value_name = "NAME", default_value = "rs0")]
    set: String,

    /// Members of the replica set, with commas between them. The first is the primary. This server is the one with the address of
    /// --bind.
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',')]
    hosts: Vec<String>,

    /// Compressors that clients may use, with commas between them: snappy, zlib, zstd, or none.
    #[arg(long, value_delimiter = ',', default_value = "zstd,snappy,zlib", value_parser = compressor)]
    compressors: Vec<Option<Compressor>>,
}

/// The words of `--face`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FaceWord {
    /// A mongod without a replica set.
    Standalone,
    /// A mongos.
    Mongos,
    /// A mongos behind a load balancer.
    LoadBalancer,
    /// A member of a replica set.
    Member,
}

pub fn run(args: &MongodbArgs) -> Result<(), String> {
    let settings = MongodbOriginSettings {
        bind: args.bind.clone(),
        workers: args.workers,
        stores: args.store,
        documents: args.documents,
        wire_version: args.wire,
        document_bytes: args.payload.bytes() as usize,
        delay: args.delay.unwrap_or_default(),
        password: super::password(args.password_env.as_deref())?,
        face: face(args)?,
        compressors: args.compressors.iter().copied().flatten().collect(),
        ..MongodbOriginSettings::default()
    };
    let origin = weir_origin::mongodb::start(settings).map_err(|error| error.to_string())?;
    super::serve("mongodb", origin)
}

fn face(args: &MongodbArgs) -> Result<Face, String> {
    let MongodbArgs { bind, set, hosts, .. } = args;
    if args.face != FaceWord::Member && !hosts.is_empty() {
        return Err("--hosts is only for --face member".to_owned());
    }
    Ok(match args.face {
        FaceWord::Standalone => Face::Standalone,
        FaceWord::Mongos => Face::Mongos,
        FaceWord::LoadBalancer => Face::LoadBalancer,
        FaceWord::Member => {
            let me = bind.to_string();
            if !hosts.contains(&me) {
                return Err(format!("--hosts must name this server, {me}, as one of the members"));
            }
            let primary = hosts.first().cloned();
            let (set, hosts) = (set.clone(), hosts.clone());
            Face::Member(Member { set, hosts, me, primary, election: 1, ..Member::default() })
        }
    })
}

/// `None`: none.
fn compressor(word: &str) -> Result<Option<Compressor>, String> {
    match word {
        "none" => Ok(None),
        _ => match Compressor::from_name(word.as_bytes()) {
            Some(compressor) => Ok(Some(compressor)),
            None => Err("snappy, zlib, zstd or none".to_owned()),
        },
    }
}
