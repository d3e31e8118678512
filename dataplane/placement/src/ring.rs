//! A ring of points: a key belongs to the next point from its hash on.

/// Points of all servers, by value.
#[derive(Debug)]
pub(super) struct Ring<H> {
    points: Vec<(H, u16)>,
}

impl<H: Ord + Copy> Ring<H> {
    /// A ring of points and the servers that they belong to.
    pub(super) fn new(points: impl Iterator<Item = (H, u16)>) -> Self {
        let mut points: Vec<_> = points.collect();
        points.sort_by_key(|&(value, _)| value);
        Self { points }
    }

    /// The server of the first point that is not below `hash`; past the last one, of the first.
    pub(super) fn place(&self, hash: H) -> u16 {
        self.walk(hash).next().unwrap_or(0)
    }

    /// The servers of all points from there on, once around.
    pub(super) fn walk(&self, hash: H) -> impl Iterator<Item = u16> {
        let at = self.points.partition_point(|&(value, _)| value < hash);
        self.points[at..].iter().chain(&self.points[..at]).map(|&(_, server)| server)
    }
}
