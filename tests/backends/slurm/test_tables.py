from clusterkit.backends.slurm.tables import SlurmTables

TOLD = """Welcome to the cluster
PartitionName=gpu-a40 AllowGroups=ALL Default=YES MaxTime=1-00:00:00 TRES=cpu=8,mem=62.50G State=UP
PartitionName=owners of nodes AllowGroups=rich Default=NO DenyQos= MaxTime=UNLIMITED\r
PartitionName=bare
"""


def test_each_partition_is_known_by_its_name_with_its_fields():
    rows = SlurmTables({"partitions": TOLD}).partitions
    assert list(rows) == ["gpu-a40", "owners of nodes", "bare"]
    assert rows["gpu-a40"].text("MaxTime") == "1-00:00:00"
    assert rows["gpu-a40"].max_time == 86400
    assert rows["gpu-a40"].text("TRES") == "cpu=8,mem=62.50G"
    assert rows["owners of nodes"].fields == {
        "AllowGroups": "rich",
        "Default": "NO",
        "DenyQos": "",
        "MaxTime": "UNLIMITED",
    }
    assert rows["bare"].fields == {}


def test_the_default_partition_is_found_if_there_is_one():
    default = SlurmTables({"partitions": TOLD}).default
    assert default
    assert default.name == "gpu-a40"
    assert SlurmTables({"partitions": "PartitionName=long Default=NO"}).default is None
    assert SlurmTables({}).default is None


def test_blanks_without_end_are_read_at_once():
    blanks = " " * 1_000_000
    rows = SlurmTables({"partitions": f"PartitionName=a{blanks}!", "config": f"Name = x{blanks}!"})
    assert list(rows.partitions) == [f"a{blanks}!"]
    assert rows.config.text("Name") == f"x{blanks}!"
