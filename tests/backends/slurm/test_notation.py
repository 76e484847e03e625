from clusterkit.backends.slurm.notation import default, partitions

TOLD = """Welcome to the cluster
PartitionName=gpu-a40 AllowGroups=ALL Default=YES MaxTime=1-00:00:00 TRES=cpu=8,mem=62.50G State=UP
PartitionName=owners of nodes AllowGroups=rich Default=NO DenyQos= MaxTime=UNLIMITED\r
PartitionName=bare
"""


def test_each_partition_is_known_by_its_name_with_its_fields():
    told = partitions(TOLD)
    assert list(told) == ["gpu-a40", "owners of nodes", "bare"]
    assert told["gpu-a40"]["MaxTime"] == "1-00:00:00"
    assert told["gpu-a40"]["TRES"] == "cpu=8,mem=62.50G"
    assert told["owners of nodes"] == {
        "AllowGroups": "rich",
        "Default": "NO",
        "DenyQos": "",
        "MaxTime": "UNLIMITED",
    }
    assert told["bare"] == {}


def test_the_default_partition_is_found_if_there_is_one():
    assert default(partitions(TOLD)) == "gpu-a40"
    assert default(partitions("PartitionName=long Default=NO")) is None
    assert default(partitions("")) is None
