"""Workers read from a server that answers a few bytes at a time."""

import socket
import sys
import threading
import time

import torch
from torch.utils.data import DataLoader, Dataset

server = socket.create_server(("127.0.0.1", 0))


def serve():
    while True:
        connection, _ = server.accept()
        threading.Thread(target=trickle, args=(connection,), daemon=True).start()


def trickle(connection):
    while True:
        time.sleep(0.1)
        connection.sendall(b"12345678")


class Remote(Dataset):
    connection = None

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        if self.connection is None:
            self.connection = socket.create_connection(server.getsockname())
        return torch.tensor(list(self.connection.recv(8)))  # the slow socket


if __name__ == "__main__":
    threading.Thread(target=serve, daemon=True).start()
    model = torch.nn.Linear(8, 8)
    for step, batch in enumerate(DataLoader(Remote(), batch_size=4, num_workers=int(sys.argv[1]))):
        if step == 1:
            print("ready", flush=True)
        model(batch.float()).sum().backward()
