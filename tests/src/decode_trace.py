"""Decodes a trace with Perfetto's own protocol buffers, as its viewer reads it:
events in the order of their times, slices of a track as a stack. Prints JSON.
Fails where the stack does not fit: an end without a beginning, or the reverse.

    PYTHONPATH=... python3 decode_trace.py FILE
"""

import json
import sys

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto

trace = proto.Trace()
with open(sys.argv[1], "rb") as file:
    trace.ParseFromString(file.read())

tracks, names, events, clocks = {}, {}, [], 0
for packet in trace.packet:
    kind = packet.WhichOneof("data")
    if kind == "clock_snapshot":
        clocks += 1
    if kind == "track_descriptor":
        it = packet.track_descriptor
        tracks[it.uuid] = {
            "name": it.thread.thread_name or it.process.process_name or it.name,
            "pid": it.thread.pid or it.process.pid,
            "tid": it.thread.tid,
            "parent": it.parent_uuid,
        }
    for name in packet.interned_data.event_names:
        names[name.iid] = name.name
    if kind == "track_event":
        it = packet.track_event
        assert it.track_uuid in tracks, f"an event of no track: {it}"
        name = names[it.name_iid] if it.name_iid else it.name
        events.append((packet.timestamp, len(events), it, name))

events.sort(key=lambda event: event[:2])
types = proto.TrackEvent.Type
slices, instants, counts, open_slices = [], [], [], {}
for time, _, event, name in events:
    track = event.track_uuid
    stack = open_slices.setdefault(track, [])
    if event.type == types.TYPE_SLICE_BEGIN:
        stack.append((name, time))
    elif event.type == types.TYPE_SLICE_END:
        assert stack, f"an end without a beginning on {tracks[track]} at {time}"
        begun, since = stack.pop()
        slices.append([track, begun, since, time, len(stack)])
    elif event.type == types.TYPE_INSTANT:
        instants.append([track, name, time])
    elif event.type == types.TYPE_COUNTER:
        counts.append([track, time, event.double_counter_value])
unfinished = {tracks[track]["name"]: stack for track, stack in open_slices.items() if stack}
assert not unfinished, f"slices without an end: {unfinished}"
json.dump(
    {"tracks": tracks, "slices": slices, "instants": instants, "counts": counts, "clocks": clocks},
    sys.stdout,
)
