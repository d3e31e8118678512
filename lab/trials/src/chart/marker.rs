//! Marks of points: a shape for each colour, so that series are told apart without it.

use super::COLOURS;

/// Outlines around the origin: circle, triangle, square, cross, diamond, plus. The order is that of the colours.
const SHAPES: [&str; COLOURS] = [
    "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z",
    "M0,-5L5,4L-5,4z",
    "M-4,-4H4V4H-4z",
    "M-4,-4L4,4M-4,4L4,-4",
    "M0,-5L5,0L0,5L-5,0z",
    "M0,-5V5M-5,0H5",
];

/// A mark in a drawing, with words for who points at it.
pub(super) fn at(look: usize, x: f64, y: f64, words: &str) -> String {
    format!(
        r#"<path class="dot s{look}" transform="translate({x:.1} {y:.1})" d="{}"><title>{words}</title></path>"#,
        SHAPES[look % COLOURS]
    )
}

/// The same mark beside the name of its series.
pub(super) fn sample(look: usize) -> String {
    format!(
        r#"<svg class="sample" viewBox="-7 -7 14 14" aria-hidden="true"><path class="dot s{look}" d="{}"/></svg>"#,
        SHAPES[look % COLOURS]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_colour_has_a_shape_of_its_own() {
        let shapes: std::collections::BTreeSet<&str> = SHAPES.into_iter().collect();
        assert_eq!(shapes.len(), COLOURS);
        assert!(at(1, 2.0, 3.0, "a: 1, 2").contains(SHAPES[1]) && sample(1).contains(SHAPES[1]));
        assert_ne!(sample(0), sample(3));
    }
}
