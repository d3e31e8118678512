//! Lists the files of `src/peers`, so that a new peer is a file there and nothing else.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=src/peers");
    let folder = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("src/peers");
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_, std::io::Error>>()?;
    // Without the ending: `weir` stands before `weir-http`.
    files.sort_by_key(|file| file.with_extension(""));
    let (mut weir, mut others) = (String::new(), String::new());
    for file in files.iter().filter(|file| !file.with_extension("").ends_with("nginx-origin")) {
        let is_weir = fs::read_to_string(file)?.lines().any(|line| line == "name = \"weir\"");
        writeln!(if is_weir { &mut weir } else { &mut others }, "include_str!({file:?}),")?;
    }
    let lists = format!("const WEIR: &[&str] = &[{weir}];\nconst OTHERS: &[&str] = &[{others}];\n");
    fs::write(Path::new(&env::var("OUT_DIR")?).join("peers.rs"), lists)?;
    Ok(())
}
