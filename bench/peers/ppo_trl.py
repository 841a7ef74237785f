#!/usr/bin/env python3
"""PPO steps of TRL's PPOTrainer on the model of a directory, for bench/ppo_step.py.

    ppo_trl.py MODEL REWARD_MODEL PROMPTS [--answers N] [--tokens N] [--minibatches N] [--epochs N] [--updates N] [--threads N]

MODEL is a GPT-2 as a Hugging Face directory; REWARD_MODEL one with a value_head.safetensors, which also gives the
critic. PROMPTS is a text file with a prompt a line. Prints the seconds of each update, and
samples/s by the median of those after the first, by the clock and by the processor's time.
"""
import argparse
import os
import statistics
import time

parser = argparse.ArgumentParser()
parser.add_argument("model")
parser.add_argument("reward_model")
parser.add_argument("prompts")
parser.add_argument("--answers", type=int, default=64)
parser.add_argument("--tokens", type=int, default=48)
parser.add_argument("--minibatches", type=int, default=2)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--updates", type=int, default=6)
parser.add_argument("--threads", type=int, default=os.cpu_count())
args = parser.parse_args()

import torch  # noqa: E402  after the arguments, because it takes seconds
from datasets import Dataset  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2ForSequenceClassification, TrainerCallback  # noqa: E402
from trl.experimental.ppo import PPOConfig, PPOTrainer  # noqa: E402

torch.set_num_threads(args.threads)
torch.manual_seed(0)


def with_head():
    model = GPT2ForSequenceClassification.from_pretrained(args.reward_model, num_labels=1)
    model.score.weight.data.copy_(load_file(os.path.join(args.reward_model, "value_head.safetensors"))["value.weight"])
    return model


class Clock(TrainerCallback):
    def __init__(self):
        self.seconds, self.cpu_seconds = [], []
        self.start()

    def start(self):
        self.last, self.last_cpu = time.perf_counter(), time.process_time()

    def on_step_end(self, *_, **__):
        self.seconds.append(time.perf_counter() - self.last)
        self.cpu_seconds.append(time.process_time() - self.last_cpu)
        self.start()


tokenizer = AutoTokenizer.from_pretrained(args.model, padding_side="left")
tokenizer.pad_token_id = tokenizer.eos_token_id = 0
with open(args.prompts, encoding="ascii") as file:
    prompts = [line.rstrip("\n") for line in file]
rows = [{"input_ids": tokenizer(prompts[i % len(prompts)])["input_ids"]} for i in range(args.answers * args.updates)]
data = Dataset.from_list(rows)
config = PPOConfig(
    output_dir=os.path.join(os.path.dirname(os.path.abspath(args.prompts)), "trl"), report_to="none", save_strategy="no", use_cpu=True, bf16=False,
    per_device_train_batch_size=args.answers // args.minibatches, gradient_accumulation_steps=1,
    num_mini_batches=args.minibatches, num_ppo_epochs=args.epochs, total_episodes=args.answers * args.updates,
    local_rollout_forward_batch_size=args.answers, response_length=args.tokens, temperature=1.0, kl_coef=0.05,
    num_sample_generations=0, learning_rate=1e-4, stop_token=None, disable_tqdm=True, gradient_checkpointing=False)
clock = Clock()
trainer = PPOTrainer(
    args=config, processing_class=tokenizer, model=AutoModelForCausalLM.from_pretrained(args.model),
    ref_model=AutoModelForCausalLM.from_pretrained(args.model), reward_model=with_head(), value_model=with_head(),
    train_dataset=data, eval_dataset=data.select(range(min(8, len(rows)))), callbacks=[clock])
clock.start()
trainer.train()
print("seconds=" + " ".join(f"{s:.4f}" for s in clock.seconds))
for kind, seconds in (("second", clock.seconds), ("cpu_second", clock.cpu_seconds)):
    print(f"samples_per_{kind}={args.answers / statistics.median(seconds[1:] or seconds):.2f}")
