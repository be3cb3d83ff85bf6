//! Where the elements of a root lie in memory.

use super::{GeometryError, MAX_RANK, PerAxis, Region};

/// The geometry a root is made with: mins, extents and element strides, one for each axis.
///
/// Axis 0 is the innermost by convention, but strides may be in any order and of either sign.
///
/// ```
/// use hedgerow::Shape;
/// let image = Shape::packed([640, 480]);                       // x, y
/// let planar = Shape::packed([640, 480, 3]);                   // x, y, channel
/// let interleaved = Shape::with_order([640, 480, 3], [2, 0, 1]); // channel innermost in memory
/// let padded = Shape::strided([640, 480], [1, 704]);           // rows of 640 in a pitch of 704
/// let centred = Shape::packed([3, 3]).min([-1, -1]);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    rank: usize,
    /// How many mins were given: as many as there are axes, or the layout is refused.
    mins: usize,
    min: PerAxis<i32>,
    extent: PerAxis<u32>,
    stride: PerAxis<i64>,
}

impl Shape {
    /// Dense, axis 0 innermost, all mins zero.
    pub fn packed<const N: usize>(extents: [u32; N]) -> Self {
        let mut order = [0; N];
        for (axis, slot) in order.iter_mut().enumerate() {
            *slot = axis;
        }
        Self::with_order(extents, order)
    }

    /// Dense, with the axes laid out in memory in the order given, innermost first.
    ///
    /// An `order` that is not a permutation gives strides that [`Layout::new`] refuses.
    pub fn with_order<const N: usize>(extents: [u32; N], order: [usize; N]) -> Self {
        let mut stride = [0i64; N];
        let mut next = 1i64;
        for axis in order {
            if let (Some(slot), Some(extent)) = (stride.get_mut(axis), extents.get(axis)) {
                *slot = next;
                next = next.saturating_mul(i64::from(*extent).max(1));
            }
        }
        Self::strided(extents, stride)
    }

    /// Any strides, in elements. A negative stride walks towards lower addresses.
    pub fn strided<const N: usize>(extents: [u32; N], strides: [i64; N]) -> Self {
        Self {
            rank: N,
            mins: N,
            min: PerAxis::all(0),
            extent: PerAxis::from_slice(&extents, 1),
            stride: PerAxis::from_slice(&strides, 0),
        }
    }

    /// The same shape with its first coordinates moved to `min`: one for each axis, or [`Layout::new`]
    /// refuses it.
    #[must_use]
    pub fn min<const N: usize>(mut self, min: [i32; N]) -> Self {
        self.min = PerAxis::from_slice(&min, 0);
        self.mins = N;
        self
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.rank
    }
}

/// A checked layout: the root's region, byte strides, and where its first element lies.
///
/// Accepted are layouts in which, sorted by absolute stride, each stride is at least the byte span of
/// all smaller axes: no two elements share a byte. Axes of one or no element are ignored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    region: Region,
    stride: PerAxis<i64>,
    /// Byte offset of the element at the region's mins from the lowest byte.
    base: u64,
    /// Bytes from the lowest to one past the highest.
    span: u64,
    element: u32,
}

impl Layout {
    /// Checks `shape` for elements of `element` bytes.
    ///
    /// # Errors
    /// [`GeometryError`] when the rank is too high, something overflows, or elements would overlap.
    pub fn new(shape: &Shape, element: usize) -> Result<Self, GeometryError> {
        if shape.rank > MAX_RANK {
            return Err(GeometryError::Rank { given: shape.rank, expected: MAX_RANK });
        }
        if shape.mins != shape.rank {
            return Err(GeometryError::Rank { given: shape.mins, expected: shape.rank });
        }
        let element = match u32::try_from(element) {
            Ok(0) => return Err(GeometryError::ZeroSized),
            Ok(size) => size,
            Err(_) => return Err(GeometryError::Overflow { axis: 0 }),
        };
        let mut region = Region::with_rank(shape.rank);
        let mut stride = PerAxis::all(0i64);
        for axis in 0..shape.rank {
            let lo = shape.min.at(axis);
            let hi = i64::from(lo) + i64::from(shape.extent.at(axis));
            let hi = i32::try_from(hi).map_err(|_| GeometryError::Overflow { axis })?;
            region.set(axis, lo, hi);
        }
        // Axes of one or no element have no neighbours: their strides may be anything, and are kept as 0.
        for axis in 0..shape.rank {
            if region.is_empty() || region.extent(axis) == 1 {
                continue;
            }
            let bytes = shape.stride.at(axis).checked_mul(i64::from(element));
            stride.set(axis, bytes.ok_or(GeometryError::Overflow { axis })?);
        }
        Self::checked(region, stride, element)
    }

    /// The same region packed: axes in the same order and direction, no gaps. Device memory uses it, so
    /// that a dense root is one flat span on both sides.
    ///
    /// # Errors
    /// [`GeometryError::Overflow`], which a region already laid out cannot meet.
    pub fn packed_like(&self, region: &Region) -> Result<Self, GeometryError> {
        let mut stride = PerAxis::all(0i64);
        let mut next = i64::from(self.element);
        for axis in self.by_stride(region) {
            let Some(axis) = axis else { break };
            stride.set(axis, if self.stride.at(axis) < 0 { -next } else { next });
            next = next
                .checked_mul(i64::from(region.extent(axis)).max(1))
                .ok_or(GeometryError::Overflow { axis })?;
        }
        Self::checked(*region, stride, self.element)
    }

    /// The layout of a view of this root, in the view's coordinates, from its own lowest byte.
    ///
    /// # Errors
    /// [`GeometryError::Overflow`], which a view of a root already laid out cannot meet.
    pub fn of_view(&self, map: &super::ViewMap) -> Result<Self, GeometryError> {
        let mut stride = PerAxis::all(0i64);
        for axis in 0..map.rank() {
            let own = self.stride(map.root_axis(axis)).checked_mul(i64::from(map.step(axis)));
            // A single element is never stepped from.
            let own = if map.extent(axis) <= 1 { Some(0) } else { own };
            stride.set(axis, own.ok_or(GeometryError::Overflow { axis })?);
        }
        Self::checked(map.region(), stride, self.element)
    }

    /// The longer-than-one axes of `region` from the smallest absolute stride to the largest.
    fn by_stride(&self, region: &Region) -> [Option<usize>; MAX_RANK] {
        let mut order = [None; MAX_RANK];
        let mut taken = PerAxis::all(false);
        for slot in &mut order {
            let next = (0..region.rank())
                .filter(|axis| !taken.at(*axis) && region.extent(*axis) > 1)
                .min_by_key(|axis| self.stride.at(*axis).unsigned_abs());
            if let Some(axis) = next {
                taken.set(axis, true);
            }
            *slot = next;
        }
        order
    }

    fn checked(region: Region, stride: PerAxis<i64>, element: u32) -> Result<Self, GeometryError> {
        let mut layout = Self { region, stride, base: 0, span: u64::from(element), element };
        if region.is_empty() {
            layout.span = 0;
            return Ok(layout);
        }
        for axis in layout.by_stride(&region) {
            let Some(axis) = axis else { break };
            let overflow = GeometryError::Overflow { axis };
            let stride = stride.at(axis);
            if stride.unsigned_abs() < layout.span {
                return Err(GeometryError::OverlappingStrides {
                    axis,
                    stride,
                    inner_span: layout.span,
                });
            }
            let reach = stride
                .unsigned_abs()
                .checked_mul(u64::from(region.extent(axis) - 1))
                .ok_or(overflow)?;
            layout.span = layout.span.checked_add(reach).ok_or(overflow)?;
            if stride < 0 {
                layout.base += reach;
            }
        }
        if i64::try_from(layout.span).is_err() {
            return Err(GeometryError::Overflow { axis: region.rank().saturating_sub(1) });
        }
        Ok(layout)
    }

    /// The coordinates laid out.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Bytes between neighbours on `axis`; 0 where it has no neighbours.
    pub fn stride(&self, axis: usize) -> i64 {
        self.stride.at(axis)
    }

    /// Bytes from the lowest to one past the highest.
    pub fn span(&self) -> u64 {
        self.span
    }

    /// Bytes of one element.
    pub fn element(&self) -> u32 {
        self.element
    }

    /// Byte offset, from the lowest byte of the root, of the element at `at` (which is inside).
    pub fn offset(&self, at: &PerAxis<i32>) -> u64 {
        let mut offset = self.base as i64;
        for axis in 0..self.region.rank() {
            let steps = i64::from(at.at(axis)) - i64::from(self.region.lo(axis));
            offset = offset.wrapping_add(steps.wrapping_mul(self.stride.at(axis)));
        }
        offset as u64
    }

    /// Lowest byte of `region` (which is inside) and the bytes from there to one past its highest.
    pub fn window(&self, region: &Region) -> (u64, u64) {
        if region.is_empty() {
            return (0, 0);
        }
        let mut corner = PerAxis::all(0);
        let mut span = u64::from(self.element);
        for axis in 0..region.rank() {
            let stride = self.stride.at(axis);
            corner.set(axis, if stride < 0 { region.hi(axis) - 1 } else { region.lo(axis) });
            let steps = u64::from(region.extent(axis) - 1);
            span = span.saturating_add(stride.unsigned_abs().saturating_mul(steps));
        }
        (self.offset(&corner), span)
    }
}
