//! The plain sequential model that every program is compared with.
//!
//! It is written apart from the core, and as naively as can be: a dense list of elements, each with its
//! value and the set of places where that value is; a view is an explicit list of elements.

/// The host's place; device `d` is place `d + 1`.
pub const HOST: usize = 0;

/// A view: its coordinates, and which element of the root each of them is, axis 0 fastest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spot {
    /// First coordinate on each axis.
    pub min: Vec<i32>,
    /// Number of coordinates on each axis.
    pub extent: Vec<usize>,
    /// Numbers of elements in the root.
    pub elements: Vec<usize>,
}

impl Spot {
    /// The view of a whole root.
    pub fn root(min: &[i32], extent: &[usize]) -> Self {
        let elements = (0..extent.iter().product()).collect();
        Self { min: min.to_vec(), extent: extent.to_vec(), elements }
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.extent.len()
    }

    /// The coordinates of the elements, in order.
    pub fn coordinates(&self) -> Vec<Vec<i32>> {
        let mut all = Vec::with_capacity(self.elements.len());
        for mut rest in 0..self.extent.iter().product() {
            let mut at = self.min.clone();
            for (c, extent) in at.iter_mut().zip(&self.extent) {
                *c += (rest % extent) as i32;
                rest /= extent;
            }
            all.push(at);
        }
        all
    }

    /// The elements in order of a view whose coordinate `c` is what `from(c)` is in this one.
    fn pick(&self, min: Vec<i32>, extent: Vec<usize>, from: impl Fn(&[i32]) -> Vec<i32>) -> Self {
        let mut picked = Self { min, extent, elements: Vec::new() };
        picked.elements =
            picked.coordinates().iter().map(|at| self.elements[self.index(&from(at))]).collect();
        picked
    }

    /// The place of a coordinate in the list.
    pub fn index(&self, at: &[i32]) -> usize {
        let mut index = 0;
        for axis in (0..self.rank()).rev() {
            index = index * self.extent[axis] + (at[axis] - self.min[axis]) as usize;
        }
        index
    }

    /// Whether a coordinate is inside.
    pub fn contains(&self, at: &[i32]) -> bool {
        at.iter().zip(&self.min).zip(&self.extent).all(|((c, min), n)| {
            let steps = i64::from(*c) - i64::from(*min);
            steps >= 0 && steps < *n as i64
        })
    }

    /// As [`View::crop`](hedgerow::View::crop).
    pub fn crop(&self, ranges: &[std::ops::Range<i32>]) -> Self {
        let min = ranges.iter().map(|range| range.start).collect();
        let extent = ranges.iter().map(|range| range.len()).collect();
        self.pick(min, extent, <[i32]>::to_vec)
    }

    /// As [`View::slice`](hedgerow::View::slice).
    pub fn slice(&self, axis: usize, c: i32) -> Self {
        let (mut min, mut extent) = (self.min.clone(), self.extent.clone());
        min.remove(axis);
        extent.remove(axis);
        self.pick(min, extent, |at| {
            let mut at = at.to_vec();
            at.insert(axis, c);
            at
        })
    }

    /// As [`View::translate`](hedgerow::View::translate).
    pub fn translate(&self, by: &[i32]) -> Self {
        let min = self.min.iter().zip(by).map(|(min, by)| min + by).collect();
        Self { min, ..self.clone() }
    }

    /// As [`View::permute`](hedgerow::View::permute).
    pub fn permute(&self, order: &[usize]) -> Self {
        let min = order.iter().map(|axis| self.min[*axis]).collect();
        let extent = order.iter().map(|axis| self.extent[*axis]).collect();
        self.pick(min, extent, |at| {
            let mut from = at.to_vec();
            for (c, axis) in at.iter().zip(order) {
                from[*axis] = *c;
            }
            from
        })
    }

    /// As [`View::step_by`](hedgerow::View::step_by).
    pub fn step_by(&self, axis: usize, step: i32) -> Self {
        let mut extent = self.extent.clone();
        extent[axis] = extent[axis].div_ceil(step as usize);
        self.pick(self.min.clone(), extent, |at| {
            let mut at = at.to_vec();
            at[axis] = self.min[axis] + (at[axis] - self.min[axis]) * step;
            at
        })
    }

    /// As [`View::flip`](hedgerow::View::flip).
    pub fn flip(&self, axis: usize) -> Self {
        let max = self.min[axis] + self.extent[axis] as i32 - 1;
        self.pick(self.min.clone(), self.extent.clone(), |at| {
            let mut at = at.to_vec();
            at[axis] = self.min[axis] + max - at[axis];
            at
        })
    }
}

/// An element of the root.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Element<T> {
    /// `None`: nobody holds a value.
    value: Option<T>,
    /// The places that hold it, one bit each.
    fresh: u32,
    lost: bool,
}

/// How many devices a tree has at most.
pub const DEVICES: usize = 2;

/// What an access must move, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Need {
    /// From the host to each device.
    pub up: [u64; DEVICES],
    /// From each device to the host.
    pub down: [u64; DEVICES],
    /// Whether it reads what nobody holds.
    pub undefined: bool,
}

impl Need {
    /// From the host to all devices.
    pub fn all_up(&self) -> u64 {
        self.up.iter().sum()
    }

    /// From all devices to the host.
    pub fn all_down(&self) -> u64 {
        self.down.iter().sum()
    }
}

impl std::ops::AddAssign for Need {
    fn add_assign(&mut self, other: Self) {
        for device in 0..DEVICES {
            self.up[device] += other.up[device];
            self.down[device] += other.down[device];
        }
        self.undefined |= other.undefined;
    }
}

/// A whole tree, modelled.
#[derive(Clone, Debug)]
pub struct Model<T> {
    extent: Vec<usize>,
    elements: Vec<Element<T>>,
    /// Whether device 0 works on the host's bytes.
    shared: bool,
    bytes: u64,
}

impl<T: Copy> Model<T> {
    /// A root whose elements hold `values` on the host.
    pub fn new(extent: &[usize], values: Vec<Option<T>>, shared: bool) -> Self {
        let element = |value: Option<T>| Element {
            value,
            fresh: if value.is_some() { 1 << HOST } else { 0 },
            lost: false,
        };
        let elements = values.into_iter().map(element).collect();
        Self { extent: extent.to_vec(), elements, shared, bytes: size_of::<T>() as u64 }
    }

    /// The value of an element.
    pub fn value(&self, element: usize) -> Option<T> {
        self.elements[element].value
    }

    /// The places that hold an element's newest value, one bit each, with `devices` devices.
    pub fn holders(&self, element: usize, devices: usize) -> u32 {
        let holds = |place: &usize| self.elements[element].fresh & 1 << self.plane(*place) != 0;
        (0..=devices).filter(holds).map(|place| 1 << place).sum()
    }

    /// Whether a device took the element along.
    pub fn is_lost(&self, element: usize) -> bool {
        self.elements[element].lost
    }

    /// The places that have the host's bytes, one bit for each.
    pub fn home(&self) -> u32 {
        if self.shared { 1 << HOST | 1 << 1 } else { 1 << HOST }
    }

    fn plane(&self, place: usize) -> usize {
        if place == 1 && self.shared { HOST } else { place }
    }

    /// The elements of the smallest box that holds a view's: what an access to it touches.
    pub fn hull(&self, spot: &Spot) -> Vec<usize> {
        let at = |mut element: usize| -> Vec<usize> {
            let split = |n: &usize| {
                let c = element % n;
                element /= n;
                c
            };
            self.extent.iter().map(split).collect()
        };
        let Some(first) = spot.elements.first() else { return Vec::new() };
        let (mut lo, mut hi) = (at(*first), at(*first));
        for element in &spot.elements {
            for (axis, c) in at(*element).into_iter().enumerate() {
                lo[axis] = lo[axis].min(c);
                hi[axis] = hi[axis].max(c);
            }
        }
        let ranges: Vec<_> =
            lo.iter().zip(&hi).map(|(lo, hi)| *lo as i32..*hi as i32 + 1).collect();
        let mins = vec![0; self.extent.len()];
        Spot::root(&mins, &self.extent).crop(&ranges).elements
    }

    /// Whether a view leaves elements of its box out.
    pub fn is_gappy(&self, spot: &Spot) -> bool {
        self.hull(spot).len() != spot.elements.len()
    }

    /// What reading elements at a place moves there.
    pub fn need(&self, elements: &[usize], place: usize) -> Need {
        let place = self.plane(place);
        let mut need = Need::default();
        for element in elements.iter().map(|element| &self.elements[*element]) {
            if element.fresh & 1 << place != 0 {
                continue;
            }
            if element.fresh == 0 {
                need.undefined = true;
                continue;
            }
            // From another device it goes through the host: so never do two devices hold what it does not.
            if element.fresh & 1 << HOST == 0 {
                assert!(element.fresh.is_power_of_two(), "one holder");
                need.down[element.fresh.trailing_zeros() as usize - 1] += self.bytes;
            }
            if place != HOST {
                need.up[place - 1] += self.bytes;
            }
        }
        need
    }

    /// Elements were made fresh at a place.
    pub fn brought(&mut self, elements: &[usize], place: usize) {
        let place = self.plane(place);
        for element in elements {
            let element = &mut self.elements[*element];
            if element.fresh != 0 {
                if place != HOST && element.fresh & (1 << HOST | 1 << place) == 0 {
                    element.fresh |= 1 << HOST;
                }
                element.fresh |= 1 << place;
            }
        }
    }

    /// An element was written at a place.
    pub fn write(&mut self, element: usize, place: usize, value: T) {
        let fresh = 1 << self.plane(place);
        self.elements[element] = Element { value: Some(value), fresh, lost: false };
    }

    /// An element's bytes were written at a place with what they were; nobody's became `zero`.
    pub fn touched(&mut self, element: usize, place: usize, zero: T) {
        let value = self.elements[element].value.unwrap_or(zero);
        self.write(element, place, value);
    }

    /// A device was lost, and the host's bytes with it where `host_too`.
    pub fn lose(&mut self, device: usize, host_too: bool) {
        let mut gone = if host_too { 1 << HOST } else { 0 };
        if self.plane(device + 1) != HOST {
            gone |= 1 << (device + 1);
        }
        for element in &mut self.elements {
            let held = element.fresh != 0;
            element.fresh &= !gone;
            if held && element.fresh == 0 {
                element.value = None;
                element.lost = true;
            }
        }
    }

    /// What an element holds, and where, is known no more.
    pub fn forget(&mut self, element: usize) {
        self.elements[element] = Element { value: None, fresh: 0, lost: false };
    }

    /// What was lost was taken note of.
    pub fn forget_lost(&mut self) {
        for element in &mut self.elements {
            element.lost = false;
        }
    }

    /// How many elements there are.
    pub fn len(&self) -> usize {
        self.elements.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.elements.is_empty()
    }
}
