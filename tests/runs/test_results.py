"""The store of results."""

import subprocess
import sys
from pathlib import Path

from freeat.files.documents import temporary_name
from freeat.runs.results import Results, StoredEvaluation
from stored_results import stored_evaluation


def test_finding_a_result_removes_what_dead_processes_left_beside_it(tmp_path: Path) -> None:
    store, identity = Results(tmp_path), {"weights": "w"}
    store.save(stored_evaluation("free-4", 0.1, identity=identity))
    alive = temporary_name(tmp_path / "alive.json")
    alive.touch()
    code = "import sys; from pathlib import Path; from freeat.files.documents import temporary_name as t; "
    code += "t(Path(sys.argv[1], 'dead.json')).touch()"
    subprocess.run([sys.executable, "-c", code, tmp_path], check=True)
    assert len(list(tmp_path.glob(".*.tmp"))) == 2
    assert store.find(identity, StoredEvaluation) is not None
    assert list(tmp_path.glob(".*.tmp")) == [alive]
