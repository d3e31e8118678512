//! The list of models. Any other name works too, except those that begin with [`ABSENT`].

use super::{
    error::Refusal,
    json::{Part, parts},
    model_response::CREATED,
};

/// The models that are listed.
const MODELS: [&str; 5] = ["weir-small", "weir-large", "weir-reasoning", "weir-embedding", "claude-weir"];

/// The beginning of names that no model has.
const ABSENT: &str = "no-such";

/// Whether there is such a model.
pub fn exists(model: &str) -> bool {
    !model.is_empty() && !model.starts_with(ABSENT)
}

/// Appends all.
pub fn write_all(out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"object\":\"list\",\"data\":[");
    for (at, model) in MODELS.iter().enumerate() {
        out.extend_from_slice(if at == 0 { b"" } else { b"," });
        write_one(model, out);
    }
    out.extend_from_slice(b"]}");
}

/// Appends one.
///
/// # Errors
/// There is none of this name.
pub fn write(model: &str, out: &mut Vec<u8>) -> Result<(), Refusal> {
    if !exists(model) {
        return Err(Refusal::no_model(model));
    }
    write_one(model, out);
    Ok(())
}

fn write_one(model: &str, out: &mut Vec<u8>) {
    use Part::{Number, Raw, Text};
    parts(&[Raw("{\"id\":"), Text(model), Raw(",\"object\":\"model\",\"created\":"), Number(CREATED)], out);
    out.extend_from_slice(b",\"owned_by\":\"weir-lab\"}");
}
