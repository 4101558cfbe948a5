"""More cores, shorter steps, until messages and the barrier rule: the demo network on 1 to 64 cores of Loihi 1.

Prints, for each number of cores, the step time predicted from calibration and the one the cycle backend measures.
"""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import nwcompile as nw
from examples import mnist_snn


def main() -> None:
    data = mnist_snn.digits()
    module = mnist_snn.train(data, n_epochs=1)
    network = nw.from_torch(module, mnist_snn.encode(data.train_images[:2]))
    calibration = mnist_snn.encode(data.train_images[:100])
    x = mnist_snn.encode(data.test_images[:20])
    print("cores  predicted us  measured us  nJ per sample  bound by")
    for n_cores in (1, 2, 4, 8, 16, 32, 64):
        program = nw.compile(network, "loihi1", calibration, nw.Options(n_cores=n_cores))
        run = nw.simulate(program, x, backend="cycle")
        with tempfile.TemporaryDirectory() as folder:
            doc = nw.report(program, run, folder)
        rows = doc["time"]["rows"]
        predicted, measured = rows["predicted"]["step_us"], rows["measured"]["step_us"]
        energy = run.energy_pj["total"] / run.n_samples / 1000
        print(f"{n_cores:5}  {predicted:12.2f}  {measured:11.2f}  {energy:11.0f}  {doc['bottleneck']['kind']}")
    print(f"times: {run.time_basis}; energies of the cores: {run.energy_basis}")


if __name__ == "__main__":
    main()
