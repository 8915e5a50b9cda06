"""A classifier of sentences, by Hugging Face's Trainer: accumulation, evaluation, a schedule."""

import sys

import torch
from transformers import BertConfig, BertForSequenceClassification, PrinterCallback, Trainer, TrainingArguments


class Sentences(torch.utils.data.Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        draw = torch.Generator().manual_seed(index)
        return {"input_ids": torch.randint(0, 50, (7,), generator=draw), "labels": torch.tensor(index % 2)}


def main():
    torch.manual_seed(0)
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    arguments = TrainingArguments(
        output_dir=sys.argv[1],
        max_steps=4,
        per_device_train_batch_size=2,
        per_device_eval_batch_size=16,
        gradient_accumulation_steps=2,
        eval_strategy="steps",
        eval_steps=2,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        save_strategy="no",
    )
    model = BertForSequenceClassification(BertConfig(vocab_size=50, **size))
    trainer = Trainer(model, arguments, train_dataset=Sentences(), eval_dataset=Sentences())
    trainer.remove_callback(PrinterCallback)  # It prints times.
    trainer.train()
    print(*(parameter.double().sum().item().hex() for parameter in model.parameters()))


if __name__ == "__main__":
    main()
