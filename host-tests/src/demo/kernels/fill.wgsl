// Writes x * 100 + y + p * 10000, of the view's own coordinates.

struct Call { views: array<View, 1>, p: i32 }

@group(0) @binding(0) var<storage, read> call: Call;
@group(0) @binding(1) var<storage, read_write> grid: array<i32>;

@compute @workgroup_size(8, 8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let view = &call.views[0];
    if (id.x >= (*view).extent[0] || id.y >= (*view).extent[1] || id.z >= (*view).extent[2]) {
        return;
    }
    let x = (*view).first[0] + i32(id.x);
    let y = (*view).first[1] + i32(id.y);
    grid[view_byte(0u, id) / 4u] = x * 100 + y + call.p * 10000;
}
