// Non-local means of one plane: the mean of pixels whose surroundings look alike.

struct Call { views: array<View, 2>, search: i32, patch_radius: i32, noise: f32, scale: f32 }

@group(0) @binding(0) var<storage, read> call: Call;
@group(0) @binding(1) var<storage, read> noisy: array<f32>;
@group(0) @binding(2) var<storage, read_write> clean: array<f32>;

// Beyond its edges, the plane goes on with their values.
fn pixel(at: vec2<i32>) -> f32 {
    let view = &call.views[0];
    let last = vec2<i32>(i32((*view).extent[0]), i32((*view).extent[1])) - 1;
    let inside = vec2<u32>(clamp(at, vec2<i32>(0), last));
    return noisy[view_byte(0u, vec3<u32>(inside, 0u)) / 4u];
}

@compute @workgroup_size(8, 8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let view = &call.views[1];
    if (id.x >= (*view).extent[0] || id.y >= (*view).extent[1] || id.z >= (*view).extent[2]) {
        return;
    }
    let here = vec2<i32>(id.xy);
    let search = call.search;
    let radius = call.patch_radius;
    var sum = 0.0;
    var weights = 0.0;
    for (var dy = -search; dy <= search; dy++) {
        for (var dx = -search; dx <= search; dx++) {
            let there = here + vec2<i32>(dx, dy);
            var distance = 0.0;
            for (var j = -radius; j <= radius; j++) {
                for (var i = -radius; i <= radius; i++) {
                    let d = pixel(there + vec2<i32>(i, j)) - pixel(here + vec2<i32>(i, j));
                    distance += d * d;
                }
            }
            let t = clamp(1.0 - (distance - call.noise) * call.scale, 0.0, 1.0);
            let weight = t * t;
            sum += weight * pixel(there);
            weights += weight;
        }
    }
    clean[view_byte(1u, id) / 4u] = sum / weights;
}
