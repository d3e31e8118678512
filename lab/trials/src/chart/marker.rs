//! Marks of points: each series has a shape of its own, so that colour is not needed to tell them apart.

use super::COLOURS;

/// Outlines around the origin: circle, triangle, square, cross, diamond, plus, the triangle upside down, hourglass, bow, and
/// triangles that point right and left, bar. There are more than colours, which repeat.
const SHAPES: [&str; 2 * COLOURS] = [
    "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z",
    "M0,-5L5,4L-5,4z",
    "M-4,-4H4V4H-4z",
    "M-4,-4L4,4M-4,4L4,-4",
    "M0,-5L5,0L0,5L-5,0z",
    "M0,-5V5M-5,0H5",
    "M0,5L5,-4L-5,-4z",
    "M-4,-5H4L-4,5H4z",
    "M-5,-4V4L5,-4V4z",
    "M5,0L-4,5L-4,-5z",
    "M-5,0L4,5L4,-5z",
    "M-6,-2H6V2H-6z",
];

/// Class and outline of a mark.
fn look_of(look: usize) -> (usize, &'static str) {
    (look % COLOURS, SHAPES[look % SHAPES.len()])
}

/// A mark in a drawing, with words for who points at it.
pub(super) fn at(look: usize, x: f64, y: f64, words: &str) -> String {
    let (colour, shape) = look_of(look);
    format!(
        r#"<path class="dot s{colour}" transform="translate({x:.1} {y:.1})" d="{shape}"><title>{words}</title></path>"#
    )
}

/// The same mark beside the name of its series.
pub(super) fn sample(look: usize) -> String {
    let (colour, shape) = look_of(look);
    format!(
        r#"<svg class="sample" viewBox="-7 -7 14 14" aria-hidden="true"><path class="dot s{colour}" d="{shape}"/></svg>"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_with_one_colour_have_shapes_of_their_own() {
        let shapes: std::collections::BTreeSet<&str> = SHAPES.into_iter().collect();
        assert_eq!(shapes.len(), SHAPES.len());
        assert!(at(1, 2.0, 3.0, "a: 1, 2").contains(SHAPES[1]) && sample(1).contains(SHAPES[1]));
        let again = sample(1 + COLOURS);
        assert!(again.contains("s1") && again != sample(1), "{again}");
    }
}
