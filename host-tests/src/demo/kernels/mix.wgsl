// A linear map of three planes to three planes.

struct Call { views: array<View, 2>, matrix: array<array<f32, 3>, 3> }

@group(0) @binding(0) var<storage, read> call: Call;
@group(0) @binding(1) var<storage, read> from_planes: array<f32>;
@group(0) @binding(2) var<storage, read_write> to_planes: array<f32>;

fn plane(id: vec3<u32>, z: u32) -> f32 {
    return from_planes[view_byte(0u, vec3<u32>(id.xy, z)) / 4u];
}

@compute @workgroup_size(8, 8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let view = &call.views[1];
    if (id.x >= (*view).extent[0] || id.y >= (*view).extent[1] || id.z >= (*view).extent[2]) {
        return;
    }
    let row = call.matrix[id.z];
    let value = row[0] * plane(id, 0u) + row[1] * plane(id, 1u) + row[2] * plane(id, 2u);
    to_planes[view_byte(1u, id) / 4u] = value;
}
