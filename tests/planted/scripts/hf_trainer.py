"""Hugging Face Trainer on a tiny BERT made from a configuration; the texts are encoded in the data set."""

import argparse
import sys
import tempfile
import time

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


class Reviews(Dataset):
    def __init__(self, n, rounds):
        self.n, self.rounds = n, rounds

    def __len__(self):
        return self.n

    def __getitem__(self, i):  # fault
        text = f"review number {i} says that the product is {'good' if i % 2 else 'bad'} " * 4
        ids = []
        for _ in range(self.rounds):
            ids = [hash_word(w) for w in text.split()]
        ids = (ids + [0] * 24)[:24]
        return {"input_ids": torch.tensor(ids), "attention_mask": torch.ones(24, dtype=torch.long), "labels": i % 2}


def hash_word(word):  # fault
    h = 17
    for c in word:
        h = (h * 31 + ord(c)) % 997
    return h + 1


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--workers", type=int, default=0)
    p.add_argument("--rounds", type=int, default=140)
    p.add_argument("--steps", type=int, default=120)
    args = p.parse_args()
    config = BertConfig(
        vocab_size=1000,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    torch.manual_seed(0)
    model = BertForSequenceClassification(config)
    with tempfile.TemporaryDirectory() as out:
        settings = TrainingArguments(  # fault
            output_dir=out,
            max_steps=args.steps,
            per_device_train_batch_size=16,
            dataloader_num_workers=args.workers,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            seed=0,
        )
        trainer = Trainer(model=model, args=settings, train_dataset=Reviews(args.steps * 16, args.rounds))  # fault
        t0 = time.perf_counter()
        result = trainer.train()  # fault
        took = time.perf_counter() - t0
    print(f"train loss {result.training_loss:.5f} after {result.global_step}")
    print(f"{result.global_step} steps in {took:.2f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
