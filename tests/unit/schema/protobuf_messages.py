"""Generated classes of files that say what the well-known ones do not: defaults, Java's options, names, syntax 2."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

DEFAULTS = """
name: "dir/with_defaults.proto" package: "made.up" syntax: "proto2"
enum_type { name: "Level" value { name: "LOW" number: 3 } value { name: "HIGH" number: 1 } }
message_type { name: "Defaults"
  field { name: "asked" number: 1 type: TYPE_STRING label: LABEL_REQUIRED }
  field { name: "asked_message" number: 30 type: TYPE_MESSAGE type_name: ".made.up.Defaults" label: LABEL_REQUIRED }
  field { name: "text" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL default_value: "a\\"\\\\\\n\\u00e9" }
  field { name: "raw" number: 3 type: TYPE_BYTES label: LABEL_OPTIONAL }
  field { name: "u32" number: 4 type: TYPE_UINT32 label: LABEL_OPTIONAL default_value: "4294967295" }
  field { name: "u64" number: 5 type: TYPE_FIXED64 label: LABEL_OPTIONAL default_value: "18446744073709551615" }
  field { name: "s32" number: 6 type: TYPE_SINT32 label: LABEL_OPTIONAL default_value: "-7" }
  field { name: "flag" number: 7 type: TYPE_BOOL label: LABEL_OPTIONAL default_value: "true" }
  field { name: "level" number: 8 type: TYPE_ENUM type_name: ".made.up.Level"
    label: LABEL_OPTIONAL default_value: "HIGH" }
  field { name: "first" number: 9 type: TYPE_ENUM type_name: ".made.up.Level" label: LABEL_OPTIONAL }
  field { name: "f1" number: 10 type: TYPE_FLOAT label: LABEL_OPTIONAL default_value: "1.1" }
  field { name: "f2" number: 11 type: TYPE_FLOAT label: LABEL_OPTIONAL default_value: "1e+10" }
  field { name: "d3" number: 15 type: TYPE_DOUBLE label: LABEL_OPTIONAL default_value: "1.25e-05" }
  field { name: "d4" number: 16 type: TYPE_DOUBLE label: LABEL_OPTIONAL default_value: "12345678.5" }
  field { name: "d5" number: 17 type: TYPE_DOUBLE label: LABEL_OPTIONAL default_value: "100" }
  field { name: "d6" number: 18 type: TYPE_DOUBLE label: LABEL_OPTIONAL default_value: "10000000" }
  field { name: "many" number: 19 type: TYPE_MESSAGE type_name: ".made.up.Defaults" label: LABEL_REPEATED }
}
"""
NAMES = """
name: "names.proto" syntax: "proto3" dependency: "dir/with_defaults.proto"
options { java_package: "com.example" java_multiple_files: true }
message_type { name: "string"
  field { name: "own" number: 1 type: TYPE_MESSAGE type_name: ".string" label: LABEL_OPTIONAL }
  field { name: "inner" number: 2 type: TYPE_MESSAGE type_name: ".string.Inner" label: LABEL_OPTIONAL }
  field { name: "again" number: 3 type: TYPE_MESSAGE type_name: ".string.Inner.Deep" label: LABEL_REPEATED }
  field { name: "other" number: 4 type: TYPE_MESSAGE type_name: ".made.up.Defaults" label: LABEL_OPTIONAL }
  nested_type { name: "Inner"
    field { name: "deep" number: 1 type: TYPE_MESSAGE type_name: ".string.Inner.Deep" label: LABEL_OPTIONAL }
    field { name: "out" number: 2 type: TYPE_MESSAGE type_name: ".string" label: LABEL_OPTIONAL }
    nested_type { name: "Deep"
      enum_type { name: "E" value { name: "E_NONE" number: 0 } }
      field { name: "e" number: 1 type: TYPE_ENUM type_name: ".string.Inner.Deep.E" label: LABEL_OPTIONAL }
    }
  }
}
"""
RAW = """
name: "raw.proto" syntax: "proto2"
message_type { name: "Raw"
  field { name: "raw" number: 3 type: TYPE_BYTES label: LABEL_OPTIONAL default_value: "a\\\\377" }
}
"""
ENDLESS = """
name: "endless.proto" syntax: "proto2"
message_type { name: "Endless"
  field { name: "d" number: 1 type: TYPE_DOUBLE label: LABEL_OPTIONAL default_value: "-inf" }
}
message_type { name: "NoNumber"
  field { name: "f" number: 1 type: TYPE_FLOAT label: LABEL_OPTIONAL default_value: "nan" }
}
"""
BARE = """
name: "camelCase.proto" syntax: "proto3"
message_type { name: "Bare" field { name: "n" number: 1 type: TYPE_INT64 label: LABEL_OPTIONAL } }
"""
FLAT = """
name: "flat.proto" syntax: "proto3" options { java_multiple_files: true }
message_type { name: "Flat"
  field { name: "own" number: 1 type: TYPE_MESSAGE type_name: ".Flat" label: LABEL_OPTIONAL }
  field { name: "bare" number: 2 type: TYPE_MESSAGE type_name: ".Flat.In" label: LABEL_OPTIONAL }
  nested_type { name: "In" field { name: "up" number: 1 type: TYPE_MESSAGE type_name: ".Flat" label: LABEL_OPTIONAL } }
}
"""
OUTER = """
name: "outer.proto" package: "p" syntax: "proto3" options { java_outer_classname: "Named" }
message_type { name: "Outer" field { name: "n" number: 1 type: TYPE_DOUBLE label: LABEL_OPTIONAL } }
"""
GROUP = """
name: "group.proto" syntax: "proto2"
message_type { name: "Grouped"
  field { name: "g" number: 1 type: TYPE_GROUP type_name: ".Grouped.G" label: LABEL_OPTIONAL }
  nested_type { name: "G" }
}
"""

_POOL = descriptor_pool.DescriptorPool()
for _text in (DEFAULTS, NAMES, BARE, FLAT, OUTER, GROUP, RAW, ENDLESS):
    _POOL.Add(text_format.Parse(_text, descriptor_pb2.FileDescriptorProto()))


def made(full_name: str) -> Any:
    """The class of a message in one of these files."""
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(full_name))
