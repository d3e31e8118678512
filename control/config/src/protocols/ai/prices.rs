//! Prices of tokens.

use weir_spend::prices::{Price, PriceRow, PriceTable};

use super::clients::glob;
use super::keys::ListenerAiSection;
use crate::checks::error_at;
use crate::document::At;
use crate::reader::Reader;
use crate::texts::Money;

/// The prices of a listener; mistakes are reported.
pub(super) fn table(section: &ListenerAiSection, path: &str, reader: &mut Reader<'_>) -> PriceTable {
    let mut rows: Vec<PriceRow> = Vec::new();
    for (index, table) in section.price.iter().enumerate() {
        let path = format!("{path}.price[{index}]");
        let (Some(models), Some(input), Some(output)) = (&table.models, &table.input, &table.output) else { continue };
        let Some(glob) = glob(models, &path, "models", reader) else { continue };
        let tier = table.tier.as_ref().map(|tier| tier.value.0.as_str().into());
        if rows.iter().any(|row| row.models == glob && row.tier == tier) {
            error_at(models, &path, "models", "has two prices for the same tier", "remove one of them", reader);
            continue;
        }
        let money = |at: &Option<At<Money>>| at.as_ref().map(|at| at.value.0);
        let price = Price {
            input: input.value.0,
            cached_input: money(&table.cached_input),
            cache_write: money(&table.cache_write),
            audio_input: money(&table.audio_input),
            output: output.value.0,
            reasoning: money(&table.reasoning),
            audio_output: money(&table.audio_output),
        };
        rows.push(PriceRow { models: glob, tier, price });
    }
    // A list of tables has fewer than a table may have rows, and none stands twice.
    PriceTable::new(section.price_version.value, rows, None).unwrap_or_default()
}
