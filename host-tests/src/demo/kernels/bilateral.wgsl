// A bilateral filter of two planes at once: the mean of near pixels of like colour.

struct Call { views: array<View, 2>, radius: i32, reach: f32, scale: f32 }

@group(0) @binding(0) var<storage, read> call: Call;
@group(0) @binding(1) var<storage, read> noisy: array<f32>;
@group(0) @binding(2) var<storage, read_write> clean: array<f32>;

// Beyond their edges, the planes go on with the values there.
fn colour(at: vec2<i32>) -> vec2<f32> {
    let view = &call.views[0];
    let last = vec2<i32>(i32((*view).extent[0]), i32((*view).extent[1])) - 1;
    let inside = vec2<u32>(clamp(at, vec2<i32>(0), last));
    return vec2<f32>(
        noisy[view_byte(0u, vec3<u32>(inside, 0u)) / 4u],
        noisy[view_byte(0u, vec3<u32>(inside, 1u)) / 4u],
    );
}

@compute @workgroup_size(8, 8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let view = &call.views[1];
    if (id.x >= (*view).extent[0] || id.y >= (*view).extent[1] || id.z >= (*view).extent[2]) {
        return;
    }
    let here = vec2<i32>(id.xy);
    let centre = colour(here);
    let radius = call.radius;
    var sum = 0.0;
    var weights = 0.0;
    for (var dy = -radius; dy <= radius; dy++) {
        for (var dx = -radius; dx <= radius; dx++) {
            let there = colour(here + vec2<i32>(dx, dy));
            let d = there - centre;
            let near = max(1.0 - f32(dx * dx + dy * dy) * call.reach, 0.0);
            let alike = max(1.0 - (d.x * d.x + d.y * d.y) * call.scale, 0.0);
            let weight = near * alike * alike;
            sum += weight * there[id.z];
            weights += weight;
        }
    }
    clean[view_byte(1u, id) / 4u] = sum / weights;
}
