//! Replays the committed corpus, so that each input ever found stays covered by `cargo test`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use weir_fuzz::TARGETS;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf()
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    entries.map(|entry| entry.expect("readable").file_name().into_string().expect("UTF-8 name")).collect()
}

#[test]
fn every_corpus_input_passes_its_target() {
    for (name, target) in TARGETS {
        let folder = root().join("corpus").join(name);
        let inputs = names(&folder);
        assert!(inputs.len() >= 8, "{name} has a corpus worth the name, not {} inputs", inputs.len());
        for input in inputs {
            let data = fs::read(folder.join(&input)).expect("readable");
            eprintln!("{name} {input}");
            target(&data);
        }
    }
}

/// One reader's corpus is another's test: requests are also odd replies and the other way round.
#[test]
fn every_input_is_harmless_to_every_target() {
    for folder in names(&root().join("corpus")) {
        for input in names(&root().join("corpus").join(&folder)) {
            let data = fs::read(root().join("corpus").join(&folder).join(&input)).expect("readable");
            for (name, target) in TARGETS {
                eprintln!("{name} {folder}/{input}");
                target(&data);
            }
        }
    }
}

#[test]
fn targets_binaries_and_corpora_are_the_same_set() {
    let targets: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(names(&root().join("corpus")), targets);
    let binaries: BTreeSet<String> =
        names(&root().join("targets")).iter().map(|name| name.trim_end_matches(".rs").to_owned()).collect();
    assert_eq!(binaries, targets);
}
