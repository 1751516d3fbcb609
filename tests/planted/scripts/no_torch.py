"""No torch at all."""

import json
import sys

print(json.dumps({"args": sys.argv[1:], "torch": "torch" in sys.modules}))
