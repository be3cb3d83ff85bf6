//! The model: dense, one entry for each element and place. It shares nothing with the core but the
//! numbers of a shape.

/// Which elements of the root a view holds, in the view's order: brute force, composed step by step.
#[derive(Clone, Debug)]
pub(crate) struct ModelView {
    pub(crate) min: Vec<i64>,
    pub(crate) extent: Vec<i64>,
    /// Root element of each view element, axis 0 fastest.
    pub(crate) elements: Vec<usize>,
}

impl ModelView {
    pub(crate) fn root(min: &[i64], extent: &[i64]) -> Self {
        let n: i64 = extent.iter().product();
        Self { min: min.to_vec(), extent: extent.to_vec(), elements: (0..n as usize).collect() }
    }

    pub(crate) fn rank(&self) -> usize {
        self.extent.len()
    }

    fn index(&self, at: &[i64]) -> usize {
        at.iter().zip(&self.min).zip(&self.extent).rev().fold(0, |n, ((c, min), extent)| {
            assert!((0..*extent).contains(&(c - min)));
            n * *extent as usize + (c - min) as usize
        })
    }

    /// A view of these mins and extents whose element at `at` is this view's at `map(at)`.
    fn derive(&self, min: Vec<i64>, extent: Vec<i64>, map: impl Fn(&[i64]) -> Vec<i64>) -> Self {
        let mut elements = Vec::new();
        let n: i64 = extent.iter().product();
        let mut at = min.clone();
        for _ in 0..n {
            elements.push(self.elements[self.index(&map(&at))]);
            for axis in 0..at.len() {
                at[axis] += 1;
                if at[axis] < min[axis] + extent[axis] {
                    break;
                }
                at[axis] = min[axis];
            }
        }
        Self { min, extent, elements }
    }

    pub(crate) fn crop(&self, lo: &[i64], hi: &[i64]) -> Self {
        let extent = lo.iter().zip(hi).map(|(lo, hi)| hi - lo).collect();
        self.derive(lo.to_vec(), extent, <[i64]>::to_vec)
    }

    pub(crate) fn slice(&self, axis: usize, c: i64) -> Self {
        let (mut min, mut extent) = (self.min.clone(), self.extent.clone());
        min.remove(axis);
        extent.remove(axis);
        self.derive(min, extent, |at| {
            let mut at = at.to_vec();
            at.insert(axis, c);
            at
        })
    }

    pub(crate) fn translate(&self, by: &[i64]) -> Self {
        let min = self.min.iter().zip(by).map(|(min, by)| min + by).collect();
        self.derive(min, self.extent.clone(), |at| {
            at.iter().zip(by).map(|(c, by)| c - by).collect()
        })
    }

    pub(crate) fn permute(&self, order: &[usize]) -> Self {
        let pick = |values: &[i64]| order.iter().map(|axis| values[*axis]).collect::<Vec<_>>();
        self.derive(pick(&self.min), pick(&self.extent), |at| {
            let mut from = vec![0; at.len()];
            for (to, axis) in order.iter().enumerate() {
                from[*axis] = at[to];
            }
            from
        })
    }

    pub(crate) fn step_by(&self, axis: usize, step: i64) -> Self {
        let mut extent = self.extent.clone();
        extent[axis] = (extent[axis] + step - 1) / step;
        self.derive(self.min.clone(), extent, |at| {
            let mut at = at.to_vec();
            at[axis] = self.min[axis] + (at[axis] - self.min[axis]) * step;
            at
        })
    }

    pub(crate) fn flip(&self, axis: usize) -> Self {
        self.derive(self.min.clone(), self.extent.clone(), |at| {
            let mut at = at.to_vec();
            let max = self.min[axis] + self.extent[axis] - 1;
            at[axis] = self.min[axis] + max - at[axis];
            at
        })
    }
}

/// Values and freshness of every element.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    /// Whether device 0 runs on the host's bytes, so that nothing ever moves between them.
    pub(crate) shared: bool,
    /// Mins and extents of the root.
    pub(crate) min: Vec<i64>,
    pub(crate) extent: Vec<i64>,
    /// The newest value; `None` where nobody holds one.
    pub(crate) value: Vec<Option<u64>>,
    /// `fresh[place][element]`; place 0 is the host.
    pub(crate) fresh: Vec<Vec<bool>>,
    /// Elements that went with a device and were not written since.
    pub(crate) lost: Vec<bool>,
    /// Accesses alive: elements of the box, and whether they are written.
    pub(crate) held: Vec<Option<(Vec<usize>, bool)>>,
}

/// What the model says an access answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    Fine,
    Busy,
    Undefined,
}

impl Model {
    /// The smallest box of root elements that holds all of `elements`.
    pub(crate) fn hull(&self, elements: &[usize]) -> Vec<usize> {
        if elements.is_empty() {
            return Vec::new();
        }
        let rank = self.extent.len();
        let split = |mut i: usize| -> Vec<i64> {
            (0..rank)
                .map(|axis| {
                    let n = self.extent[axis] as usize;
                    let c = i % n;
                    i /= n;
                    c as i64
                })
                .collect()
        };
        let mut lo = split(elements[0]);
        let mut hi = lo.clone();
        for element in elements {
            for (axis, c) in split(*element).into_iter().enumerate() {
                lo[axis] = lo[axis].min(c);
                hi[axis] = hi[axis].max(c + 1);
            }
        }
        ModelView::root(&vec![0; rank], &self.extent).crop(&lo, &hi).elements
    }

    pub(crate) fn undefined(&self, element: usize) -> bool {
        self.value[element].is_none()
    }

    /// What an access to the box of `elements` answers, by the rules alone.
    pub(crate) fn answer(&self, boxed: &[usize], reads: bool, writes: bool) -> Answer {
        let conflicts = self.held.iter().flatten().any(|(held, held_writes)| {
            (writes || *held_writes) && boxed.iter().any(|element| held.contains(element))
        });
        if conflicts {
            Answer::Busy
        } else if reads && boxed.iter().any(|element| self.undefined(*element)) {
            Answer::Undefined
        } else {
            Answer::Fine
        }
    }

    /// Elements of `boxed` that must be brought to `place`, by source place.
    pub(crate) fn missing(&self, boxed: &[usize], place: usize) -> Vec<usize> {
        let mut count = vec![0; self.fresh.len()];
        if self.shared {
            return count;
        }
        for element in boxed {
            if !self.fresh[place][*element] && !self.undefined(*element) {
                let source = (0..self.fresh.len()).find(|p| self.fresh[*p][*element]);
                count[source.expect("a defined element is fresh somewhere")] += 1;
            }
        }
        count
    }

    /// A read made `boxed` fresh at `place`.
    pub(crate) fn bring(&mut self, boxed: &[usize], place: usize) {
        for element in boxed {
            if !self.undefined(*element) {
                self.fresh[place][*element] = true;
            }
        }
    }

    /// `boxed` was written at `place`; elements without a value became zero there.
    pub(crate) fn written(&mut self, boxed: &[usize], place: usize) {
        for element in boxed {
            self.lost[*element] = false;
            for (p, fresh) in self.fresh.iter_mut().enumerate() {
                fresh[*element] = p == place;
            }
            self.value[*element].get_or_insert(0);
        }
    }

    /// Elements of `boxed` without a value turned out to have one: a write that had to widen, or that
    /// wrote whole granules, defined them as zero.
    pub(crate) fn defined_by_widening(&mut self, boxed: &[usize]) {
        for element in boxed {
            if self.undefined(*element) {
                self.value[*element] = Some(0);
                self.fresh.iter_mut().for_each(|fresh| fresh[*element] = true);
            }
        }
    }

    /// A device went, with what only it held.
    pub(crate) fn lose(&mut self, place: usize) {
        for element in 0..self.value.len() {
            let held = std::mem::replace(&mut self.fresh[place][element], false);
            if held && self.fresh.iter().all(|fresh| !fresh[element]) {
                self.value[element] = None;
                self.lost[element] = true;
            }
        }
    }
}
