-- SPDX-License-Identifier: Apache-2.0
-- Wireshark dissector of inference messages, for UDP and TCP port 8995. Start it by
-- wireshark -X lua_script:n3ic.lua, or copy it to the folder of personal plug-ins.
local proto = Proto("n3ic", "n3ic inference")
local kinds = { [0] = "request", [1] = "results", [2] = "error" }
local faults = {
    [1] = "shorter than a header", [2] = "not an inference message",
    [3] = "of another version, or no request", [4] = "for another model",
    [5] = "of rows of another size", [6] = "of no rows, or of too many",
    [7] = "of another length than its rows",
}
local f = proto.fields
f.magic = ProtoField.string("n3ic.magic", "Magic")
f.version = ProtoField.uint8("n3ic.version", "Version")
f.kind = ProtoField.uint8("n3ic.kind", "Kind", base.DEC, kinds)
f.id = ProtoField.uint32("n3ic.id", "Request")
f.model = ProtoField.uint32("n3ic.model", "Model", base.HEX)
f.rows = ProtoField.uint16("n3ic.rows", "Rows")
f.size = ProtoField.uint16("n3ic.size", "Bytes of a row")
f.row = ProtoField.bytes("n3ic.row", "Row")
f.verdict = ProtoField.uint16("n3ic.verdict", "Verdict")
f.class = ProtoField.uint16("n3ic.class", "Class")
f.margin = ProtoField.uint32("n3ic.margin", "Margin")
f.score = ProtoField.int32("n3ic.score", "Score")
f.fault = ProtoField.uint16("n3ic.fault", "Error", base.DEC, faults)
f.most = ProtoField.uint16("n3ic.most", "Most rows")

local HEADER = 16

local function length_of(buffer, pinfo, offset)
    if buffer(offset + 3, 1):uint() == 2 then return HEADER + 4 end
    return HEADER + buffer(offset + 12, 2):uint() * buffer(offset + 14, 2):uint()
end

local function result(tree, row)
    tree:add(f.verdict, row(0, 2))
    if row:len() < 8 then return end
    tree:add(f.class, row(2, 2))
    tree:add(f.margin, row(4, 4))
    for at = 8, row:len() - 4, 4 do tree:add(f.score, row(at, 4)) end
end

local function message(buffer, pinfo, root)
    if buffer:len() < HEADER or buffer(0, 2):string() ~= "N3" then return 0 end
    local kind, rows, size = buffer(3, 1):uint(), buffer(12, 2):uint(), buffer(14, 2):uint()
    local tree = root:add(proto, buffer())
    pinfo.cols.protocol = "N3IC"
    pinfo.cols.info = string.format("%s %u: %u rows of %u bytes",
        kinds[kind] or "unknown", buffer(4, 4):uint(), rows, size)
    tree:add(f.magic, buffer(0, 2))
    tree:add(f.version, buffer(2, 1))
    tree:add(f.kind, buffer(3, 1))
    tree:add(f.id, buffer(4, 4))
    tree:add(f.model, buffer(8, 4))
    tree:add(f.rows, buffer(12, 2))
    tree:add(f.size, buffer(14, 2))
    if kind == 2 and buffer:len() >= HEADER + 4 then
        tree:add(f.fault, buffer(HEADER, 2))
        tree:add(f.most, buffer(HEADER + 2, 2))
        return buffer:len()
    end
    for i = 0, rows - 1 do
        local at = HEADER + i * size
        if size < 2 or at + size > buffer:len() then break end
        local row = tree:add(f.row, buffer(at, size))
        if kind == 1 then result(row, buffer(at, size)) end
    end
    return buffer:len()
end

function proto.dissector(buffer, pinfo, root)
    if pinfo.port_type == 2 then  -- TCP: a segment may hold several messages, and a message several segments
        dissect_tcp_pdus(buffer, root, HEADER, length_of, message)
        return buffer:len()
    end
    return message(buffer, pinfo, root)
end

DissectorTable.get("udp.port"):add(8995, proto)
DissectorTable.get("tcp.port"):add(8995, proto)
