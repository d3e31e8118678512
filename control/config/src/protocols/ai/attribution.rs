//! Header fields by which clients attribute requests.

use weir_ai::settings::AttributionFields;

use super::keys::AttributionSection;
use crate::checks::error_at;
use crate::document::At;
use crate::reader::Reader;
use crate::texts::Word;

/// The fields of a listener; mistakes are reported.
pub(super) fn fields(section: &AttributionSection, path: &str, reader: &mut Reader<'_>) -> AttributionFields {
    let path = format!("{path}.attribution");
    let AttributionSection { user, agent, conversation, tags, .. } = section;
    let all = [("user", user), ("agent", agent), ("conversation", conversation), ("tags", tags)];
    for (index, (key, field)) in all.iter().enumerate() {
        let name = &*field.value.0;
        if !AttributionFields::may_be(name) {
            let help = "write a field name that has no other meaning, as in \"x-weir-user\"";
            error_at(field, &path, key, "is not a field name, or has another meaning", help, reader);
        }
        if all[..index].iter().any(|(_, before)| before.value.0.eq_ignore_ascii_case(name)) {
            error_at(field, &path, key, "has the field of another key", "give each key a different field", reader);
        }
    }
    let name = |field: &At<Word>| field.value.0.to_ascii_lowercase().into();
    AttributionFields {
        user: name(user),
        agent: name(agent),
        conversation: name(conversation),
        tags: name(tags),
        are_forwarded: section.forward.value,
    }
}
