# SPDX-License-Identifier: MIT
# The checks of json_check, on raw lines. It gives $command, and each FIELD=VALUE as an argument.

def promised: {  # fields by what they must be
  ep: {
    "a number of things": "ranks nodes tokens hidden topk experts warps blocks iters
      bytes_logical bytes_remote checked_rows errors channels staging_slots staging_slot_bytes
      staging_bytes
      mean_bytes_logical mean_bytes_remote net_bytes forwarded_rows phases graph_calls",
    "a number": "us_min us_median us_max gbps_logical gbps_remote net_gbps",
    "a string": "op machine dtype wire mode format memory version host device date",
    "true or false": "rows_only",
    "there": "ok net_engine layout route commit slowest_rank slowest_late_us"
  },
  coll: {
    "a number of things": "ranks bytes count iters warmup blocks warps seed packet_bytes
      graph_calls checked",
    "a number": "us_min us_median us_max algbw busbw",
    "a string": "op algo asked machine dtype memory version host device date",
    "true or false": "in_place",
    "there": "errors ok commit"
  }
};

def must(holds; $complaint): if holds then empty else $complaint end;

def is($what; $field; $line):
  if $what == "a number of things" then  # jq reads 1.0 as 1: only the text tells them apart
    $line | test("\"\($field)\"\\s*:\\s*[0-9]+\\s*[,}]")
  elif $what == "a number" then .[$field] | type == "number" and . >= 0
  elif $what == "a string" then .[$field] | type == "string"
  elif $what == "true or false" then .[$field] | type == "boolean"
  else has($field) end;

def check_fields($line):
  . as $o | promised[$command] | to_entries[] | .key as $what
  | .value | splits("\\s+") as $field
  | $o | must(is($what; $field; $line); "\($field) is not \($what)");

def check_outcome:
  must(.us_min <= .us_median and .us_median <= .us_max;
    "us_median is not between us_min and us_max"),
  must(.errors == 0; "errors is not 0"),
  must(.ok == true; "ok is not true");

def row_bytes:  # one row of combine's sums, or of dispatch's tokens
  (if .op | endswith("combine") then .wire else .dtype end) as $dtype
  | if (.op | endswith("dispatch")) and .format != "dtype" then
      .hidden + .hidden / 128 * (if .format == "ue8m0" then 1 else 4 end)
    else .hidden * (if $dtype | startswith("bytes:") then 1 elif $dtype == "fp32" then 4 else 2 end) end;

# Between nodes each row that is forwarded has crossed once; low latency has other headers. The operations of a layer send what
# they send alone, but for headers: which credits share a message with rows is chance.
def check_network($before):
  .net_bytes as $sent | (.forwarded_rows * row_bytes) as $least
  | if .nodes == 1 then
      must($sent == 0 and $least == 0 and .net_engine == null;
        "net_engine is there, or has sent something, on one node")
    else
      must(.net_engine | type == "string"; "net_engine is not a string"),
      if .op == "layer" then
        ($before | map(.net_bytes | numbers) | add // 0) as $parts
        | must(0.9 * $parts <= $sent and $sent <= 1.1 * $parts;
            "net_bytes is not about the operations' sum")
      elif .op == "dispatch" or .op == "combine" then
        must($sent >= $least; "net_bytes is less than the forwarded rows have"),
        # Rows from 14336 bytes on must not cross the network with more than 2 % of headers.
        must(row_bytes < 14336 or $sent <= 1.02 * $least; "net_bytes is above 1.02 times the rows")
      elif .op == "ll_dispatch" or .op == "ll_combine" then
        must($sent >= $least; "net_bytes is less than the forwarded rows have")
      else empty end
    end;

def operations: {
  normal: ["layout", "notify", "dispatch", "combine", "layer", "dispatch_counted",
    "dispatch_capacity", "dispatch_combine"],
  "low-latency": ["ll_dispatch", "ll_combine", "ll_layer", "ll_dispatch_release"]
};

def check_ep($before):
  .op as $op
  | check_outcome,
    must(any(operations[.mode][]?; . == $op); "op is none that there is in this mode"),
    must((.mode == "low-latency") == (.layout != null); "layout is not that of low latency"),
    must((.layout != null) == (.route != null); "route is not that of low latency"),
    must((.layout != null) == (.answer != null); "answer is not that of low latency"),
    must(all($before[]; .op != $op); "op comes twice"),
    must(.bytes_remote <= .bytes_logical; "bytes_remote is more than bytes_logical"),
    must(.mean_bytes_logical <= .bytes_logical and .mean_bytes_remote <= .bytes_remote;
      "the mean of the bytes is more than the most"),
    check_network($before);

def is_about($expected): (. - $expected | fabs) <= 1e-6 * ($expected | fabs);

def check_coll:
  ((.ranks - 1) / .ranks) as $part
  | ({broadcast: 1, reduce: 1, all_reduce: (2 * $part)}[.op] // $part) as $factor
  | ({all_gather: (.ranks * .ranks), all_to_all: (.ranks * .ranks), reduce: 1}[.op]
      // .ranks) as $rows  # of all ranks
  | must((.bytes / 1000) as $kb | .algbw * .us_median | is_about($kb);
      "algbw is not bytes over us_median"),
    must((.algbw * $factor) as $busbw | .busbw | is_about($busbw);
      "busbw does not follow from algbw"),
    if .errors == null then  # who has not looked does not know
      must(.checked == 0 and .ok == null; "errors is null though results were checked")
    else
      must(.checked == .count * $rows; "checked is not the number of results"),
      check_outcome
    end;

def check_expected($word):
  ($word | split("=")[0]) as $field
  | must("\($field)=\(if has($field) then .[$field] else "?" end)" == $word;
      "\($word) does not hold");

# $before: the objects of the lines before.
def complaints($line; $before):
  if type != "object" then "no JSON object"
  else
    # What follows from fields that are missing cannot be told.
    [must([$line | scan("\"[^\"]+\"\\s*:")] | length == (unique | length);
       "a field comes twice"),
     check_fields($line)] as $wrong
    | if $wrong != [] then $wrong[]
      elif $command == "ep" then check_ep($before)
      else check_coll end,
      check_expected($ARGS.positional[])
  end;

reduce inputs as $line ({before: [], found: []};
  .before as $before
  | ($line | [fromjson?][0]) as $o
  | .found += [$o | complaints($line; $before) | "\(.) in: \($line)"]
  | .before += [$o | objects])
| if .before == [] and .found == [] then .found = ["there is no line"] else . end
| if .found == [] then empty else .found | join("\n") + "\n" | halt_error(1) end
